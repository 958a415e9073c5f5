"""The picture shows what it should, at the size that it should have, whatever it is given."""

from pathlib import Path

import cv2
import numpy as np
import pytest
from drives import JPEG

from alpamayo_ros.core.types import HORIZON, Array, Frame
from alpamayo_ros.evaluation.picture import CHOSEN, TRUTH, Caption, TickPicture, draw_tick

TIMES = np.arange(1, HORIZON + 1) * 0.1
FRAME = Frame(1, 1, 0, JPEG, "jpeg")


def path(speed: float, y: float = 0.0) -> Array:
    return np.stack([speed * TIMES, y * TIMES, 0 * TIMES], axis=-1)


def paths(speed: float = 10.0, *candidates: Array, known: int = HORIZON) -> TickPicture:
    history = np.stack([speed * np.arange(-15, 1) * 0.1, np.zeros(16), np.zeros(16)], axis=-1)
    chosen = path(speed, 2.0)
    return TickPicture(
        history, path(speed)[:known], np.stack([chosen, *candidates]), chosen, {"stop": path(0.0), "cv": path(speed)}
    )


def drawn(file: Path, shown: TickPicture, caption: Caption | None = None, frame: Frame | None = FRAME) -> Array:
    draw_tick(file, shown, caption or Caption("title"), frame)
    pixels = cv2.imread(str(file))
    assert pixels is not None
    return cv2.cvtColor(pixels, cv2.COLOR_BGR2RGB)


def where(picture: Array, colour: str) -> tuple[Array, Array]:
    """Rows and columns of the left half that have nearly that colour, the legend's aside."""
    rgb = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)])
    near = np.abs(picture[:, :540].astype(int) - rgb).max(axis=-1) < 40
    return np.nonzero(near)


@pytest.mark.parametrize(
    "shown",
    [
        paths(10.0),
        paths(0.0),
        paths(10.0, known=0),
        paths(10.0, path(10.0, -300.0), np.cumsum(np.full((HORIZON, 3), 1e4), axis=0)),
    ],
    ids=["driving", "standing", "no future", "wild samples"],
)
@pytest.mark.parametrize("frame", [FRAME, None, Frame(1, 1, 0, b"torn", "jpeg")], ids=["image", "none", "torn"])
def test_it_is_1200_pixels_wide_whatever_is_shown(tmp_path: Path, shown: TickPicture, frame: Frame | None) -> None:
    assert drawn(tmp_path / "tick.png", shown, frame=frame).shape == (750, 1200, 3)


def test_forward_is_up_and_left_is_left(tmp_path: Path) -> None:
    picture = drawn(tmp_path / "tick.png", paths(10.0))
    truth_rows, truth_columns = where(picture, TRUTH)
    chosen_rows, chosen_columns = where(picture, CHOSEN)
    far = truth_rows.min() + 30
    assert chosen_columns[chosen_rows < far].mean() < truth_columns[truth_rows < far].mean() - 20


def test_metres_are_as_long_sideways_as_ahead(tmp_path: Path) -> None:
    shown = paths(10.0, path(10.0, 10.0))
    diagonal = TickPicture(shown.history, path(5.0, 5.0), shown.candidates[:1], path(5.0, -5.0))
    picture = drawn(tmp_path / "tick.png", diagonal)
    rows, columns = where(picture[:560], TRUTH)  # above the legend
    assert np.ptp(rows) == pytest.approx(np.ptp(columns), rel=0.1)


def test_wild_samples_do_not_shrink_what_was_driven(tmp_path: Path) -> None:
    plain, _ = where(drawn(tmp_path / "a.png", paths(10.0)), TRUTH)
    wild, _ = where(drawn(tmp_path / "b.png", paths(10.0, path(10.0, 3000.0))), TRUTH)
    assert np.ptp(wild) > 0.8 * np.ptp(plain)


def test_any_text_can_be_written(tmp_path: Path) -> None:
    caption = Caption("a $b$ ^title", "warning", "cam", "é \x00 $x_{ \u4f60 " + "word " * 500, (("a", "b"), ("1", "2")))
    assert drawn(tmp_path / "tick.png", paths(), caption).shape == (750, 1200, 3)
