"""Videos become images, frame by frame."""

from pathlib import Path

import cv2
import numpy as np
import pytest

from alpamayo_ros.core.types import ConfigurationError
from alpamayo_ros.evaluation.datasets.video import video_frames, video_size

RAMP = Path(__file__).parent / "gray_ramp.hevc"  # x265: twelve frames, each 20 brighter than the one before


def test_a_bare_stream_of_hevc() -> None:
    assert video_size(RAMP) == (160, 96)
    images = [cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR) for data, _ in video_frames(RAMP, 12)]
    assert [image.shape for image in images] == [(96, 160, 3)] * 12
    assert np.allclose([image.mean() for image in images], np.arange(12) * 20, atol=2)


@pytest.mark.parametrize(("count", "message"), [(13, "has 12 frames that can be decoded"), (11, "more than the 11")])
def test_another_number_of_frames_is_an_error(count: int, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        list(video_frames(RAMP, count))


@pytest.mark.parametrize(
    ("content", "message"), [(None, "there is no video at"), (b"nothing", "is no video that OpenCV")]
)
def test_no_video(tmp_path: Path, content: bytes | None, message: str) -> None:
    path = tmp_path / "none.mp4"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigurationError, match=message):
        list(video_frames(path, 1))
    with pytest.raises(ConfigurationError, match=message):
        video_size(path)
