"""Numbers from the host to a device without waiting for it."""

from __future__ import annotations

import torch
from torch import Tensor


def to_device(numbers: Tensor, device: torch.device) -> Tensor:
    """The same on the device; a copy is queued behind what it has to do, and unlike `.to` nobody waits for it."""
    if device.type != "cuda" or numbers.is_cuda:
        return numbers.to(device)
    return numbers.pin_memory().to(device, non_blocking=True)
