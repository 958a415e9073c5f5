"""Camera images to the vision tower's input, as the Qwen2-VL image processor makes it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from alpamayo_ros.core.types import BadImageError, ConfigurationError
from alpamayo_ros.model.fields import convert
from alpamayo_ros.model.resize import Resize, resize

MAX_ASPECT_RATIO = 200
PROCESSOR_KEYS = ("patch_size", "merge_size", "temporal_patch_size", "image_mean", "image_std")


class ImageSizeError(BadImageError):
    """An image whose size the model can't take."""


@dataclass(frozen=True)
class ImageConfig:
    """How images are prepared: sizes from the backbone's preprocessor_config.json, pixel limits from config.json."""

    min_pixels: int = 163840
    max_pixels: int = 196608
    patch_size: int = 16
    merge_size: int = 2
    temporal_patch_size: int = 2
    image_mean: tuple[float, float, float] = (0.5, 0.5, 0.5)
    image_std: tuple[float, float, float] = (0.5, 0.5, 0.5)

    def __post_init__(self) -> None:
        if not 0 < self.min_pixels <= self.max_pixels:
            raise ConfigurationError(
                f"min_pixels is {self.min_pixels} and max_pixels is {self.max_pixels}; "
                "both have to be positive, and max_pixels at least min_pixels"
            )
        for name in ("patch_size", "merge_size", "temporal_patch_size"):
            if getattr(self, name) < 1:
                raise ConfigurationError(f"{name} is {getattr(self, name)}; it has to be at least 1")

    @classmethod
    def from_json(cls, model: Mapping[str, Any], preprocessor: Mapping[str, Any] | None = None) -> ImageConfig:
        """Read the pixel limits from config.json and the rest from preprocessor_config.json.

        The processor's own `size` doesn't count: NVIDIA's code overrides it with the model's limits.

        Raises:
            ConfigurationError: a value that can't be.
        """
        limits = {key: model[key] for key in ("min_pixels", "max_pixels") if model.get(key) is not None}
        rest = {key: value for key, value in (preprocessor or {}).items() if key in PROCESSOR_KEYS}
        return cls(
            **{key: convert(value, getattr(cls, key), f"{key} in config.json") for key, value in limits.items()},
            **{
                key: convert(value, getattr(cls, key), f"{key} in preprocessor_config.json")
                for key, value in rest.items()
            },
        )

    @property
    def factor(self) -> int:
        """Sides of a resized image are multiples of this."""
        return self.patch_size * self.merge_size

    @property
    def max_tokens(self) -> int:
        """Of the largest image in a prompt."""
        return self.max_pixels // self.factor**2

    @property
    def min_tokens(self) -> int:
        """Of the smallest image in a prompt; one more than six times as long as wide may have fewer."""
        return math.ceil(self.min_pixels / self.factor**2)


@dataclass(frozen=True, eq=False)
class ImagePatches:
    """Images as the vision tower takes them, one after the other."""

    pixel_values: Tensor  # [patches of all images, 3 * temporal_patch_size * patch_size^2] float32
    grids: tuple[tuple[int, int], ...]  # rows and columns of patches of each image
    token_counts: tuple[int, ...]  # tokens of each image in the prompt

    @classmethod
    def joined(cls, images: Sequence[ImagePatches]) -> ImagePatches:
        """These images one after the other."""
        return cls(
            torch.cat([each.pixel_values for each in images]),
            tuple(grid for each in images for grid in each.grids),
            tuple(count for each in images for count in each.token_counts),
        )

    def each(self) -> list[ImagePatches]:
        """Every image alone; nothing is copied."""
        pixels = self.pixel_values.split([rows * columns for rows, columns in self.grids])
        parts = zip(pixels, self.grids, self.token_counts, strict=True)
        return [ImagePatches(values, (grid,), (count,)) for values, grid, count in parts]

    @property
    def grid_thw(self) -> Tensor:
        """[images, 3] int64, as transformers takes the grids: 1, rows and columns."""
        return torch.tensor([(1, *grid) for grid in self.grids], device=self.pixel_values.device)


def target_size(height: int, width: int, config: ImageConfig) -> tuple[int, int]:
    """The height and width to which an image is resized: Qwen's `smart_resize`.

    Both are multiples of `config.factor`, the aspect ratio is kept as well as that allows, and the area lies within
    the pixel limits.

    Raises:
        ImageSizeError: an empty image, or one more than 200 times as long as wide.
    """
    if min(height, width) < 1:
        raise ImageSizeError(f"an image of {width}x{height} pixels is empty")
    if max(height, width) / min(height, width) > MAX_ASPECT_RATIO:
        raise ImageSizeError(
            f"an image of {width}x{height} pixels is too long; the aspect ratio has to be {MAX_ASPECT_RATIO} at most"
        )
    factor = config.factor
    rows, columns = round(height / factor) * factor, round(width / factor) * factor
    if rows * columns > config.max_pixels:
        shrink = math.sqrt(height * width / config.max_pixels)
        rows = max(factor, math.floor(height / shrink / factor) * factor)
        columns = max(factor, math.floor(width / shrink / factor) * factor)
    elif rows * columns < config.min_pixels:
        grow = math.sqrt(config.min_pixels / (height * width))
        rows = math.ceil(height * grow / factor) * factor
        columns = math.ceil(width * grow / factor) * factor
    return rows, columns


def token_count(height: int, width: int, config: ImageConfig) -> int:
    """How many tokens an image of this size takes in the prompt."""
    rows, columns = target_size(height, width, config)
    return rows * columns // config.factor**2


def patchify(images: Tensor, config: ImageConfig) -> Tensor:
    """Normalise uint8 images [N, 3, H, W] of fitting size and cut them into patches.

    Patches come in blocks of merge_size x merge_size, blocks and the patches inside row by row; a patch holds channel,
    time, row, column, and the image stands for every moment of the temporal patch.

    Returns:
        [N, patches, 3 * temporal_patch_size * patch_size^2] float32.
    """
    count, channels, height, width = images.shape
    patch, merge, moments = config.patch_size, config.merge_size, config.temporal_patch_size
    mean, std = _levels(config, images.device)
    values = (images.float() - mean) / std
    blocks = values.view(
        count, channels, height // config.factor, merge, patch, width // config.factor, merge, patch
    ).permute(0, 2, 5, 3, 6, 1, 4, 7)
    repeated = blocks[:, :, :, :, :, :, None].expand(*blocks.shape[:6], moments, patch, patch)
    return repeated.reshape(count, -1, channels * moments * patch * patch)


def preprocess(
    images: Sequence[Tensor | NDArray[np.uint8]],
    config: ImageConfig,
    device: torch.device | str = "cpu",
    resize: Resize = resize,
) -> ImagePatches:
    """Resize, normalise and cut images of any sizes; those of one size that follow each other go in one piece.

    Args:
        images: RGB uint8 [H, W, 3] each, as arrays or tensors.
        config: The pixel limits and patch sizes.
        device: Where the work happens and the result lies.
        resize: The same function by other means.

    Raises:
        BadImageError: an image of another type or shape.
        ImageSizeError: an image that is empty or too long.
    """
    if not images:
        raise BadImageError("there are no images; at least one is needed")
    pixels: list[Tensor] = []
    grids: list[tuple[int, int]] = []
    for (height, width, _), alike in groupby(map(_as_tensor, images), key=lambda image: image.shape):
        rows, columns = target_size(height, width, config)
        together = torch.stack([image.to(device, non_blocking=True) for image in alike])
        pixels.append(patchify(resize(together.permute(0, 3, 1, 2), rows, columns), config).flatten(0, 1))
        grids += [(rows // config.patch_size, columns // config.patch_size)] * len(together)
    counts = tuple(rows * columns // config.merge_size**2 for rows, columns in grids)
    return ImagePatches(torch.cat(pixels), tuple(grids), counts)


@lru_cache(maxsize=16)
def _levels(config: ImageConfig, device: torch.device) -> tuple[Tensor, Tensor]:
    """Mean and deviation of each channel in levels of 0 to 255, [3, 1, 1]."""
    mean, std = (torch.tensor(values) * 255 for values in (config.image_mean, config.image_std))
    return mean.view(3, 1, 1).to(device), std.view(3, 1, 1).to(device)


def _as_tensor(image: Tensor | NDArray[np.uint8]) -> Tensor:
    if isinstance(image, np.ndarray):
        if image.dtype != np.uint8:
            raise BadImageError(f"an image has the type {image.dtype}; it has to be uint8")
        # A negative stride (a flipped view) can't become a tensor, and torch warns of an array it can't write.
        image = torch.from_numpy(image if image.flags.writeable and min(image.strides) > 0 else image.copy())
    if image.dtype != torch.uint8 or image.ndim != 3 or image.shape[-1] != 3:
        raise BadImageError(
            f"an image has the type {image.dtype} and the shape {tuple(image.shape)}; it has to be uint8 [H, W, 3]"
        )
    return image
