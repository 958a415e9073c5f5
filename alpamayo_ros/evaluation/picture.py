"""One tick as a picture: the paths from above, what the anchor camera saw, and what the model wrote."""

from __future__ import annotations

import textwrap
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import cv2
import numpy as np
from numpy.typing import NDArray

from alpamayo_ros.core.types import Array, BadImageError, ConfigurationError, Frame
from alpamayo_ros.sensors.camera_model import CameraModel
from alpamayo_ros.sensors.decode import decode
from alpamayo_ros.sensors.overlay import draw_paths

SIZE = (12.0, 7.5)  # inches at 100 dpi: 1200 x 750 pixels
DPI = 100
TRUTH, CHOSEN, CANDIDATE, HISTORY, VELOCITY, STOP = "#1a9850", "#1f4fd8", "#7aa6f0", "#555555", "#e08214", "#b2182b"
BASELINE_COLORS = {
    "stop": STOP,
    "constant_velocity": VELOCITY,
    "constant_turn_rate_and_acceleration": "#8073ac",
    "history_repeated": "#35978f",
}
MIN_SPAN = 12.0  # m that are shown at least, also of a vehicle that stands
MARGIN = 3.0  # m around what must be seen
COLUMN, COLUMN_WIDTH, COLUMN_TOP = 0.48, 0.505, 0.88  # of image, text and table, as parts of the figure
IMAGE_HEIGHT, NO_IMAGE_HEIGHT = 0.47, 0.1  # at most, and without one
TEXT_WIDTH = 74  # characters
TEXT_LINES = 6
DRAWN_WIDTH = 1200  # pixels at least, of a picture that paths are drawn into
NAMES_WIDTH = 0.4  # of the table, for its first column
JPEG_QUALITY = 85


@dataclass(frozen=True, eq=False)
class TickPicture:
    """What is drawn. All paths in m, in ego; each begins after the origin."""

    history: Array  # [16, 3]
    truth: Array  # [n, 3]
    candidates: Array  # [K, 64, 3]
    chosen: Array  # [64, 3]
    baselines: Mapping[str, Array] = field(default_factory=dict)  # [64, 3] each


@dataclass(frozen=True)
class Caption:
    """What is written."""

    title: str
    warning: str = ""  # in red below the title
    camera: str = ""  # name of the anchor camera
    reasoning: str = ""
    rows: tuple[tuple[str, ...], ...] = ()  # a table; the first row is its heading


def draw_tick(
    path: Path | BinaryIO, paths: TickPicture, caption: Caption, frame: Frame | None, camera: CameraModel | None = None
) -> None:
    """Write the picture, 1200 x 750 pixels: a PNG, or a JPEG where it goes to a stream.

    Args:
        path: of the file, or an open stream.
        paths: see there.
        caption: see there.
        frame: of the anchor camera at t0; None where it is not known.
        camera: that camera; the paths are drawn into its picture where it is known.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=SIZE, dpi=DPI, facecolor="white")
    _text(figure, 0.02, 0.955, caption.title, fontsize=13, fontweight="bold", va="center")
    if caption.warning:
        _text(figure, 0.02, 0.915, caption.warning, fontsize=11, color=STOP, fontweight="bold", va="center")
    _draw_paths(figure.add_axes((0.065, 0.075, 0.385, 0.805)), paths)
    below = _draw_image(figure, frame, caption.camera, paths, camera)
    _write_text(figure, caption, below)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing")  # a box is drawn then, which says enough
        if isinstance(path, Path):
            figure.savefig(path, dpi=DPI)
        else:
            figure.savefig(path, dpi=DPI, format="jpeg", pil_kwargs={"quality": JPEG_QUALITY})


def _draw_paths(axes: Any, paths: TickPicture) -> None:
    """Forward is up and left is left: x along the vertical axis, y along the horizontal one, growing leftwards."""
    for number, candidate in enumerate(paths.candidates):
        label = f"{len(paths.candidates)} samples" if number == 0 else None
        _line(axes, candidate, color=CANDIDATE, linewidth=1.4, alpha=0.55, label=label, zorder=2)
    for name, baseline in paths.baselines.items():
        label = name.replace("_", " ")
        if np.ptp(baseline[:, :2]) > 0:
            color = BASELINE_COLORS.get(name, VELOCITY)
            _line(axes, baseline, color=color, linewidth=1.8, linestyle="--", label=label, zorder=3)
        else:
            axes.plot(0, 0, marker="X", color=STOP, markersize=9, linestyle="none", label=label, zorder=7)
    axes.plot(paths.history[:, 1], paths.history[:, 0], color=HISTORY, linewidth=2.5, label="history", zorder=3)
    if len(paths.truth):
        _line(axes, paths.truth, color=TRUTH, linewidth=4, alpha=0.8, label="driven", zorder=4)
    _line(axes, paths.chosen, color=CHOSEN, linewidth=2.2, label="chosen path", zorder=5)
    _mark_seconds(axes, paths.truth, TRUTH)
    _mark_seconds(axes, paths.chosen, CHOSEN)
    axes.plot(0, 0, marker="^", color="black", markersize=8, linestyle="none", zorder=8)
    _set_limits(axes, paths)
    axes.set_xlabel("y in m, to the left")
    axes.set_ylabel("x in m, forward; dots are 1 s apart")
    axes.grid(True, color="#dddddd", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.legend(loc="best", fontsize=9, framealpha=0.9)


def _line(axes: Any, points: Array, **style: Any) -> None:
    """A path from the vehicle on."""
    axes.plot(np.append(0.0, points[:, 1]), np.append(0.0, points[:, 0]), **style)


def _mark_seconds(axes: Any, points: Array, color: str) -> None:
    seconds = points[9::10]
    axes.plot(seconds[:, 1], seconds[:, 0], color=color, marker="o", markersize=4.5, linestyle="none", zorder=6)


def _set_limits(axes: Any, paths: TickPicture) -> None:
    """All of history, truth, chosen path and baselines, and of the samples what lies near these."""
    shown = np.concatenate([paths.history, paths.truth, paths.chosen, *paths.baselines.values()])[:, :2]
    samples = paths.candidates.reshape(-1, 3)[:, :2]
    reach = max(float(np.abs(shown).max()), MIN_SPAN)
    near = samples[np.abs(samples).max(axis=-1) <= 1.5 * reach]
    everything = np.concatenate([shown, near])
    low, high = everything.min(axis=0) - MARGIN, everything.max(axis=0) + MARGIN
    box = axes.get_window_extent()
    # metres per pixel: the same along both axes, so that what must be seen fits
    scale = max((high[0] - low[0]) / box.height, (high[1] - low[1]) / box.width, MIN_SPAN / box.height)
    middle = (low + high) / 2
    axes.set_ylim(middle[0] - scale * box.height / 2, middle[0] + scale * box.height / 2)
    axes.set_xlim(middle[1] + scale * box.width / 2, middle[1] - scale * box.width / 2)  # left is left
    axes.set_aspect("equal", adjustable="box")


def _draw_image(figure: Any, frame: Frame | None, name: str, paths: TickPicture, camera: CameraModel | None) -> float:
    """Into the upper right; returns the height at which it ends, as a part of the figure's."""
    trouble, pixels = "no image", None
    if frame is not None:
        try:
            pixels = decode(frame)
            if camera is not None:
                pixels = draw_paths(_enlarged(pixels), camera, paths.chosen, list(paths.candidates), paths.truth)
        except (BadImageError, ConfigurationError) as error:
            trouble = str(error)
    height = NO_IMAGE_HEIGHT
    if pixels is not None:
        needed = COLUMN_WIDTH * pixels.shape[0] / pixels.shape[1] * SIZE[0] / SIZE[1]
        height = min(needed, IMAGE_HEIGHT)
    axes = figure.add_axes((COLUMN, COLUMN_TOP - height, COLUMN_WIDTH, height))
    axes.set_axis_off()
    if pixels is None:
        axes.text(0.5, 0.5, textwrap.fill(trouble, 60), ha="center", va="center", fontsize=10)
    else:
        axes.imshow(pixels, interpolation="antialiased")
        axes.set_anchor("NW")
        axes.set_title(f"{name} at t0", fontsize=10, loc="left", pad=4)
    return COLUMN_TOP - height


def _enlarged(pixels: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """A small picture at the size at which it is shown, so that lines on it are fine."""
    factor = DRAWN_WIDTH / pixels.shape[1]
    if factor <= 1:
        return pixels
    return np.asarray(cv2.resize(pixels, None, fx=factor, fy=factor, interpolation=cv2.INTER_LINEAR), np.uint8)


def _write_text(figure: Any, caption: Caption, top: float) -> None:
    _text(figure, COLUMN, top - 0.035, "Reasoning", fontsize=10, fontweight="bold", va="top")
    _text(figure, COLUMN, top - 0.065, _wrapped(caption.reasoning), fontsize=10, va="top", linespacing=1.25)
    if not caption.rows:
        return
    axes = figure.add_axes((COLUMN, 0.03, COLUMN_WIDTH, 0.15))
    axes.set_axis_off()
    columns = len(caption.rows[0]) - 1
    widths = [NAMES_WIDTH, *[(1 - NAMES_WIDTH) / columns] * columns]
    table = axes.table(cellText=caption.rows, loc="center", cellLoc="right", colWidths=widths)
    table.auto_set_font_size(False)
    table.set_fontsize(9)
    for (row, column), cell in table.get_celld().items():
        cell.set_linewidth(0.6)
        cell.visible_edges = "B" if row == 0 else "open"
        cell.set_text_props(ha="left" if column == 0 else "right", fontweight="bold" if row == 0 else "normal")


def _text(figure: Any, x: float, y: float, text: str, **style: Any) -> None:
    """Text as it is: a dollar sign begins no formula."""
    figure.text(x, y, text, parse_math=False, **style)


def printable(text: str) -> str:
    """The text with a box for every character that can't be printed, and one space between words."""
    return "".join(char if char.isprintable() else "\N{WHITE SQUARE}" for char in " ".join(text.split()))


def _wrapped(text: str) -> str:
    """The text in at most TEXT_LINES lines."""
    lines = textwrap.wrap(printable(text), TEXT_WIDTH, max_lines=TEXT_LINES, placeholder=" ...")
    return "\n".join(lines or ["(none)"])
