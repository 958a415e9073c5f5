"""Checks image_preprocess.npz: the sizes of resized images, the resize itself, and the cut into patches."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np

from alpamayo_ros.model.images import ImageConfig, ImageSizeError, patchify, target_size, token_count
from alpamayo_ros.model.resize import resize
from alpamayo_ros.tools.parity.case import Case, CaseResult, Checker, Machine, Status, close, equal
from alpamayo_ros.tools.parity.recipes import recipe_image, smooth_image

GIVEN_TOLERANCE = 1.0  # levels, for images in the file: noise, which shows the order of the passes
RECIPE_TOLERANCE = 2.0  # levels, for images made by a formula
PIXEL_TOLERANCE = 1e-6  # after normalisation, for the same uint8 image

Arrays = dict[str, np.ndarray]


def _cases(path: Path, machine: Machine) -> Iterator[Case]:
    with np.load(path) as file:
        arrays = dict(file)
    for index, (height, width) in enumerate(arrays.get("smart_resize_in_hw", ())):
        name = f"{path.stem}/smart_resize_{height}x{width}"
        yield Case(name, partial(_check_size, name, arrays, index))
    for height, width in arrays.get("error_hw", ()):
        name = f"{path.stem}/smart_resize_{height}x{width}_refused"
        yield Case(name, partial(_check_refused, name, int(height), int(width)))
    for case in sorted(key.removesuffix("_resized_uint8") for key in arrays if key.endswith("_resized_uint8")):
        yield Case(f"{path.stem}/{case}", partial(_check_image, f"{path.stem}/{case}", arrays, case, machine))


def _check_size(name: str, arrays: Arrays, index: int) -> Iterator[CaseResult]:
    height, width = (int(side) for side in arrays["smart_resize_in_hw"][index])
    config = ImageConfig()
    rows, columns = target_size(height, width, config)
    yield equal(f"{name}/size", (rows, columns), arrays["smart_resize_out_hw"][index])
    grid = (1, rows // config.patch_size, columns // config.patch_size)
    yield equal(f"{name}/grid", grid, arrays["grid_thw"][index])
    yield equal(f"{name}/tokens", token_count(height, width, config), arrays["tokens_per_image"][index])


def _check_refused(name: str, height: int, width: int) -> Iterator[CaseResult]:
    try:
        size = target_size(height, width, ImageConfig())
    except ImageSizeError:
        yield CaseResult(name, Status.PASS)
    else:
        yield CaseResult(name, Status.FAIL, 1.0, 0.0, f"the size is {size}, expected is an error")


def _check_image(name: str, arrays: Arrays, case: str, machine: Machine) -> Iterator[CaseResult]:
    image = _image(arrays, case)
    low, high = (int(limit) for limit in arrays[f"{case}_min_max_pixels"])
    config = ImageConfig(low, high)
    if f"{case}_image_first4rows" in arrays:
        yield equal(f"{name}/input", image[:, :4], arrays[f"{case}_image_first4rows"])
    expected = arrays[f"{case}_resized_uint8"]
    _, height, width = image.shape
    rows, columns = target_size(height, width, config)
    resized = resize(machine.tensor(image)[None], rows, columns)[0]
    tolerance = GIVEN_TOLERANCE if f"{case}_image" in arrays else RECIPE_TOLERANCE
    yield close(f"{name}/resized", resized, expected, tolerance)
    grid = (1, rows // config.patch_size, columns // config.patch_size)
    yield equal(f"{name}/grid", grid, arrays[f"{case}_grid_thw"])
    patches = patchify(machine.tensor(expected)[None], config)[0]
    for key in (f"{case}_pixel_values", f"{case}_pixel_values_first8patches"):
        if key in arrays:
            pixels = patches if key.endswith("pixel_values") else patches[: len(arrays[key])]
            yield close(f"{name}/pixel_values", pixels, arrays[key], PIXEL_TOLERANCE)


def _image(arrays: Arrays, case: str) -> np.ndarray:
    if f"{case}_image" in arrays:
        return arrays[f"{case}_image"]
    found = re.fullmatch(r"(smooth|recipe)_(\d+)x(\d+).*", case)
    if not found:
        raise KeyError(f"{case}_image is missing, and the name tells no recipe")
    height, width = int(found[2]), int(found[3])
    return smooth_image(height, width) if found[1] == "smooth" else recipe_image(height, width)


IMAGES = Checker("image_preprocess*.npz", _cases)
