"""Predicted paths drawn into the picture of a calibrated camera."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import replace

import cv2
import numpy as np
from numpy.typing import NDArray

from alpamayo_ros.core.types import Array, ConfigurationError
from alpamayo_ros.sensors.camera_model import CameraModel

Picture = NDArray[np.uint8]  # [H, W, 3] RGB
Color = tuple[int, int, int]

CHOSEN, CANDIDATE, DRIVEN = (31, 79, 216), (150, 190, 255), (26, 152, 80)
NEAR = 0.5  # m in front of the camera: what is nearer, or behind it, is cut off
STEP = 0.25  # m between projected points: a straight line is none in a wide lens
HALF_WIDTH = 0.9  # m, of the vehicle
MIN_LENGTH = 0.5  # m; a shorter path is a vehicle that stands, and has no direction
SHIFT = 4  # fractional bits of pixel positions, for OpenCV
LINE, FONT_SCALE, TEXT_BACK, TEXT_COLOR = 26, 0.55, (24, 28, 34), (240, 240, 240)  # LINE in pixels


def resized(camera: CameraModel, width: int, height: int) -> CameraModel:
    """The same camera with pictures of another size, of the same shape.

    Raises:
        ConfigurationError: another shape, so that one can't tell what was cut off.
    """
    across, down = width / camera.width, height / camera.height
    if abs(across / down - 1) > 0.02:
        raise ConfigurationError(
            f"the picture has {width}x{height} pixels, its calibration {camera.width}x{camera.height}: another shape"
        )
    return replace(
        camera,
        width=width,
        height=height,
        focal_x=camera.focal_x * across,
        focal_y=camera.focal_y * down,
        # pixel centres are at whole numbers, so the picture's corner is at -0.5
        center_x=(camera.center_x + 0.5) * across - 0.5,
        center_y=(camera.center_y + 0.5) * down - 0.5,
    )


def in_front(camera: CameraModel, points: Array) -> list[Array]:
    """The parts of a path that are at least NEAR in front of the camera, cut where it crosses that plane.

    Args:
        camera: in ego.
        points: [N, 3] m in ego.

    Returns:
        Pieces [n, 3] of 2 points or more, in order.
    """
    depth = camera.to_optical(points)[:, 2] - NEAR
    pieces: list[list[Array]] = [[]]
    for i, point in enumerate(points):
        if i and (depth[i] >= 0) != (depth[i - 1] >= 0):
            part = depth[i - 1] / (depth[i - 1] - depth[i])
            pieces[-1].append(points[i - 1] + part * (point - points[i - 1]))
            if depth[i] < 0:
                pieces.append([])
        if depth[i] >= 0:
            pieces[-1].append(point)
    return [np.array(piece) for piece in pieces if len(piece) > 1]


def lines(camera: CameraModel, path: Array) -> list[Array]:
    """A path as lines in the picture.

    Args:
        camera: in ego.
        path: [N, 3] m in ego.

    Returns:
        Lines [n, 2] of pixels, finely divided; they may leave the picture, but never come from behind the camera.
    """
    found = []
    for piece in in_front(camera, path):
        pixels, _ = camera.project(_divided(piece))
        found += _runs(pixels)
    return found


def ribbon(camera: CameraModel, path: Array) -> list[Array]:
    """The ground that a vehicle covers on a path, as quadrilaterals [4, 2] of pixels, the nearest first."""
    found: list[Array] = []
    for piece in in_front(camera, path):
        points = _divided(piece)
        step = np.gradient(points[:, :2], axis=0)
        length = np.linalg.norm(step, axis=-1, keepdims=True)
        if np.linalg.norm(np.diff(points[:, :2], axis=0), axis=-1).sum() < MIN_LENGTH:
            continue
        left = np.zeros_like(points)
        left[:, :2] = np.stack([-step[:, 1], step[:, 0]], axis=-1) / np.maximum(length, 1e-9) * HALF_WIDTH
        edges = np.stack([points + left, points - left], axis=1)  # [n, 2, 3]
        near = camera.to_optical(edges)[..., 2] < NEAR / 2
        pixels, _ = camera.project(edges)
        pixels[near] = np.nan
        quads = np.concatenate([pixels[:-1], pixels[1:, ::-1]], axis=1)
        found += [quad for quad in quads if np.isfinite(quad).all()]
    return found


def draw_paths(
    picture: Picture, camera: CameraModel, chosen: Array, candidates: Sequence[Array] = (), driven: Array | None = None
) -> Picture:
    """The picture with the chosen path as a ribbon of the vehicle's width, and the others as lines.

    Args:
        picture: of that camera; it may be scaled.
        camera: in ego.
        chosen: [64, 3] m in ego.
        candidates: [64, 3] each.
        driven: [n, 3]; the truth, where it is known.

    Raises:
        ConfigurationError: the picture has another shape than the camera's.
    """
    height, width = picture.shape[:2]
    camera = resized(camera, width, height)
    thickness = max(1, round(width / 640))
    drawn = picture.copy()
    for candidate in candidates:
        _draw_lines(drawn, lines(camera, candidate), CANDIDATE, thickness)
    filled = drawn.copy()
    for quad in ribbon(camera, chosen):
        cv2.fillConvexPoly(filled, _fixed(quad), CHOSEN, cv2.LINE_AA, SHIFT)
    drawn = cv2.addWeighted(filled, 0.45, drawn, 0.55, 0).astype(np.uint8)
    if driven is not None and len(driven):
        _draw_lines(drawn, lines(camera, driven), DRIVEN, 2 * thickness)
    _draw_lines(drawn, lines(camera, chosen), CHOSEN, 2 * thickness)
    return drawn


def write_below(picture: Picture, text: str) -> Picture:
    """The picture with a text below it, in as many lines as it needs; OpenCV's font knows ASCII alone."""
    width = picture.shape[1]
    plain = "".join(char if " " <= char <= "~" else "?" for char in " ".join(text.split()))
    rows = textwrap.wrap(plain, max(10, int(width / 10.5)))
    band = np.full((LINE * len(rows) + 10 * bool(rows), width, 3), TEXT_BACK, np.uint8)
    for number, row in enumerate(rows):
        place = (10, LINE * (number + 1) - 4)
        cv2.putText(band, row, place, cv2.FONT_HERSHEY_SIMPLEX, FONT_SCALE, TEXT_COLOR, 1, cv2.LINE_AA)
    return np.concatenate([picture, band])


def _divided(points: Array) -> Array:
    """Points [n, 3] with more of them in between, no more than STEP apart."""
    length = np.linalg.norm(np.diff(points, axis=0), axis=-1)
    counts = np.maximum(np.ceil(length / STEP).astype(int), 1)
    parts = [
        start + (end - start) * (np.arange(count) / count)[:, None]
        for start, end, count in zip(points[:-1], points[1:], counts, strict=True)
    ]
    return np.concatenate([*parts, points[-1:]])


def _runs(pixels: Array) -> list[Array]:
    """Split [n, 2] where the lens doesn't reach (NaN)."""
    known = np.isfinite(pixels).all(axis=-1)
    edges = np.flatnonzero(np.diff(known)) + 1
    return [run for run in np.split(pixels, edges) if len(run) > 1 and np.isfinite(run).all()]


def _draw_lines(picture: Picture, found: Sequence[Array], color: Color, thickness: int) -> None:
    for line in found:
        cv2.polylines(picture, [_fixed(line)], False, color, thickness, cv2.LINE_AA, SHIFT)


def _fixed(pixels: Array) -> NDArray[np.int32]:
    """For OpenCV's fixed-point drawing; far outside of the picture it would overflow."""
    limit = 2.0**24
    return np.rint(np.clip(pixels * 2**SHIFT, -limit, limit)).astype(np.int32)
