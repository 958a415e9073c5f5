"""How much of the device an engine holds."""

from __future__ import annotations


def device_memory_bytes(device: str) -> int:
    """Device memory that this process holds in torch, in bytes; 0 where the device is none of CUDA's."""
    if not device.startswith("cuda"):
        return 0
    import torch  # an engine on cuda has loaded it

    return int(torch.cuda.memory_reserved())
