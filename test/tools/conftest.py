"""What the commands that evaluate bags are tried on."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from drives import circle, record, straight, write_bag


@pytest.fixture
def rig(tmp_path: Path) -> Path:
    """One camera and the null engine."""
    file = tmp_path / "rig.yaml"
    cameras = {"front_wide": {"topic": "/camera/front_wide/image/compressed"}}
    parameters = {"cameras": cameras, "odometry": {"topic": "/odometry"}, "engine": {"kind": "null"}}
    file.write_text(yaml.safe_dump({"/**": {"ros__parameters": parameters}}))
    return file


@pytest.fixture
def bags(tmp_path: Path) -> list[Path]:
    """A straight drive, a turn, and one whose camera was unplugged."""
    blind = [message for message in record(straight(9.0), 3) if "image" not in message.topic]
    return [
        write_bag(tmp_path / "bags" / "straight", record(straight(9.0), 10)),
        write_bag(tmp_path / "bags" / "turn", record(circle(8.0, 40.0), 10)),
        write_bag(tmp_path / "bags" / "blind", blind),
    ]
