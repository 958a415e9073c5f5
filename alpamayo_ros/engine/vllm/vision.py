"""The vision tower beside vLLM: frames become features as they arrive, and vLLM is given the features.

vLLM's own tower works in vLLM's steps: a frame that arrives during a tick would wait for the next one. This one needs
nothing of vLLM. It is the native engine's: on CUDA a captured graph per size of image, on a stream of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from alpamayo_ros.engine.native.vision_tower import VisionTower
from alpamayo_ros.model.alpamayo import AlpamayoNetwork
from alpamayo_ros.model.backbone import ImageFeatures, restore_rotary_buffers
from alpamayo_ros.model.checkpoint import Checkpoint, set_parameter
from alpamayo_ros.model.config import ModelConfig
from alpamayo_ros.model.images import ImagePatches
from alpamayo_ros.model.random_weights import random_tensors


@dataclass(frozen=True, eq=False)
class HostFeatures(ImageFeatures):
    """Features in host memory; embeddings and deepstack are views of what vLLM takes."""

    joined: Tensor  # [T, (1 + layers) hidden_size]: a token's embedding, then its deepstack


class HostVision:
    """A tower whose features come to lie on the host.

    There vLLM wants its input: its workers may be other processes, and vLLM 0.25.1 hangs with input that lies on a GPU.
    It copies it to the device itself when it reads the prompt.
    """

    def __init__(self, tower: VisionTower) -> None:
        self._tower = tower

    def encode(self, patches: ImagePatches) -> list[ImageFeatures]:
        """Each image alone. On CUDA the features are there when the current stream has done its work."""
        return self.encode_each(patches.each())

    def encode_each(self, patches: Sequence[ImagePatches]) -> list[ImageFeatures]:
        """Encode single images, each as if it were alone."""
        return [_on_host(each) for each in self._tower.encode_each(patches)]


def load_vision(
    config: ModelConfig, files: Checkpoint, network: AlpamayoNetwork, device: torch.device, dtype: torch.dtype
) -> HostVision:
    """The checkpoint's tower, or the one of the random weights that the transformers engine makes.

    Args:
        config, files: The checkpoint's.
        network: On the meta device; its tower is taken.
        device, dtype: Where the weights go and what they become.
    """
    restore_rotary_buffers(network.vlm, config.backbone)
    tower = _TowerAlone(network)
    if config.random_seed is None:
        files.load_into(tower, device, dtype)
    else:
        missing = {name for name, _ in tower.named_parameters()}
        for name, tensor in random_tensors(network, config.random_seed, device):
            if name in missing:
                set_parameter(tower, name, tensor.to(dtype))
                missing.remove(name)
            if not missing:
                break
    return HostVision(VisionTower(tower.visual, device))


class _TowerAlone(nn.Module):
    """The vision tower under its names in the checkpoint, without the rest of the network."""

    def __init__(self, network: AlpamayoNetwork) -> None:
        super().__init__()
        model = nn.Module()
        model.visual = network.vlm.model.visual
        self.vlm = nn.Module()
        self.vlm.model = model

    @property
    def visual(self) -> nn.Module:
        """Transformers' vision model."""
        return self.get_submodule("vlm.model.visual")


def _on_host(features: ImageFeatures) -> HostFeatures:
    layers, tokens, hidden = features.deepstack.shape
    deepstack = features.deepstack.transpose(0, 1).flatten(1)
    on_device = torch.cat((features.embeddings, deepstack), 1)
    joined = torch.empty(on_device.shape, dtype=on_device.dtype, pin_memory=on_device.is_cuda)
    joined.copy_(on_device, non_blocking=True)
    views = joined.view(tokens, 1 + layers, hidden)
    return HostFeatures(views[:, 0], views[:, 1:].transpose(0, 1), features.rows, features.columns, joined)
