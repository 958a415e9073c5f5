"""Images that golden files don't store, by the formulas of their README."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray


def recipe_image(height: int, width: int, frame: int = 0, k: int = 0) -> NDArray[np.uint8]:
    """The test image number `frame` of a case: uint8 [3, height, width]."""
    c, y, x = np.ogrid[:3, :height, :width]
    value = 5 * x + 3 * y + 61 * c + 29 * frame + 17 * k
    value = value + x * y // (7 + frame) + 13 * ((x // 8 + y // 8 + frame) % 5)
    return (value % 256).astype(np.uint8)


def recipe_images(settings: Mapping[str, Any]) -> NDArray[np.uint8]:
    """All images of an end-to-end case: uint8 [images, 3, height, width]."""
    height, width = settings["image_hw"]
    k = settings["frames_recipe_k"]
    return np.stack([recipe_image(height, width, frame, k) for frame in range(settings["n_images"])])


def smooth_image(height: int, width: int) -> NDArray[np.uint8]:
    """Waves and squares: uint8 [3, height, width]."""
    c, y, x = np.ogrid[:3, :height, :width]
    waves = 127.5 + 60 * np.sin(x / (9 + 5 * c)) + 50 * np.cos(y / (7 + 3 * c) + c)
    return np.rint(waves + 40 * ((x // 23 + y // 17) % 2)).clip(0, 255).astype(np.uint8)
