"""The files of a bag, found and opened: by metadata.yaml or without it, packed or not, intact or damaged."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import yaml

from alpamayo_ros.core.types import ConfigurationError
from alpamayo_ros.evaluation.bag_storage import IntactStorage, Storage
from alpamayo_ros.evaluation.damaged_bag import DamagedMcap, DamagedSqlite, NotABag
from alpamayo_ros.evaluation.zstd import SUFFIX, unpack_file

DAMAGED: dict[str, type[DamagedMcap] | type[DamagedSqlite]] = {".mcap": DamagedMcap, ".db3": DamagedSqlite}


class BagFiles:
    """Every file of a bag, ready to be read.

    Args:
        path: a folder as `ros2 bag record` leaves it, or a single file.
        warn: is told what is missing or damaged.

    Raises:
        ConfigurationError: there is no bag at `path`.
    """

    def __init__(self, path: Path, warn: Callable[[str], None]) -> None:
        self._path = path
        self._warn = warn
        self._unpacked: TemporaryDirectory[str] | None = None  # of files that were packed
        try:
            self.storages = self._open()
        except BaseException:
            self._remove_unpacked()
            raise

    def close(self) -> None:
        """Free the files, and remove what was unpacked."""
        for storage in self.storages:
            storage.close()
        self._remove_unpacked()

    def _remove_unpacked(self) -> None:
        if self._unpacked is not None:
            self._unpacked.cleanup()

    def _open(self) -> list[Storage]:
        try:
            if not self._path.exists():
                raise ConfigurationError(f"there is no bag at {self._path}: no such file or folder")
            if self._path.is_file():
                return [self._open_file(self._path)]
            if not self._path.is_dir():
                raise ConfigurationError(f"{self._path} is not a bag: it is neither a folder nor a file")
            files = self._files()
        except OSError as error:
            raise ConfigurationError(f"the bag {self._path} can't be read: {error}") from error
        return [self._open_file(file) for file in files]

    def _files(self) -> list[Path]:
        """The bag's files, in order."""
        present = sorted(
            file for file in self._path.iterdir() if Path(file.name.removesuffix(SUFFIX)).suffix in DAMAGED
        )
        metadata = self._path / "metadata.yaml"
        if not metadata.is_file():
            if not present:
                raise ConfigurationError(
                    f"{self._path} is not a bag: it has neither a metadata.yaml nor a file ending in "
                    f"{' or '.join(DAMAGED)}"
                )
            self._warn(f"{metadata} is missing; reading {', '.join(file.name for file in present)}")
            return present
        try:
            information = yaml.safe_load(metadata.read_text())["rosbag2_bagfile_information"]
            files = [self._path / Path(name).name for name in information["relative_file_paths"]]
        except (OSError, ValueError, yaml.YAMLError, KeyError, TypeError, AttributeError, RecursionError) as error:
            self._warn(f"{metadata} can't be read ({error!r}); reading {', '.join(file.name for file in present)}")
            return present
        for file in files:
            if not file.is_file():
                self._warn(f"{file} is missing, though metadata.yaml lists it")
        files = [file for file in files if file.is_file()]
        if not files:
            raise ConfigurationError(f"{self._path} is not a bag: none of the files in its metadata.yaml exists")
        return files

    def _open_file(self, file: Path) -> Storage:
        named = file  # in messages to the user
        if file.suffix == SUFFIX:
            file = self._unpack(file)
        if file.suffix not in DAMAGED:
            hint = "; convert a ROS 1 bag with rosbags-convert" if file.suffix == ".bag" else ""
            raise ConfigurationError(
                f"{named} is not a bag: expected a folder or a file ending in {' or '.join(DAMAGED)}{hint}"
            )
        try:
            return IntactStorage(file, self._warn)
        except Exception as error:
            try:
                damaged = DAMAGED[file.suffix](file)
            except (NotABag, OSError, ValueError) as reason:
                raise ConfigurationError(f"{named} is not a bag, or nothing of it can be read: {reason}") from error
        read = sum(damaged.contents.counts.values())
        self._warn(f"{named} is damaged: {damaged.damage}; {read} messages before that could be read")
        return damaged

    def _unpack(self, packed: Path) -> Path:
        """The file in a temporary folder, which `close` removes."""
        if self._unpacked is None:
            self._unpacked = TemporaryDirectory(prefix="alpamayo_ros_")
        try:
            return unpack_file(packed, Path(self._unpacked.name))
        except (OSError, ValueError) as error:
            raise ConfigurationError(f"{packed} can't be unpacked: {error}") from error
