"""ROS message types without ROS: those of Kilted and this package's own, as plain classes that `rosbags` generates."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from rosbags.typesys import Stores, get_types_from_msg, get_typestore
from rosbags.typesys.store import Typestore

from alpamayo_ros.core.types import ConfigurationError


@cache
def ros_types() -> Typestore:
    """All message types by name, as in `ros_types().types["nav_msgs/msg/Odometry"]`.

    Raises:
        ConfigurationError: this package's own message definitions can't be found.
    """
    store = get_typestore(Stores.ROS2_KILTED)
    own = {}
    for definition in sorted(_definitions().glob("*.msg")):
        own.update(get_types_from_msg(definition.read_text(), f"alpamayo_ros/msg/{definition.stem}"))
    store.register(own)
    return store


def _definitions() -> Path:
    """The folder of this package's .msg files: beside the sources, or below the prefix where it is installed."""
    package = Path(__file__).parents[1]
    folders = [package.parent / "msg", *(prefix / "share/alpamayo_ros/msg" for prefix in package.parents)]
    for folder in folders:
        if (folder / "Trajectory.msg").is_file():
            return folder
    raise ConfigurationError(
        f"the message definitions of alpamayo_ros are missing: no Trajectory.msg in {folders[0]} or in "
        f"share/alpamayo_ros/msg above {package}; install the package with its msg folder"
    )
