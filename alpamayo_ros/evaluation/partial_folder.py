"""Folders that are written under another name at first, so that they appear whole or not at all."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from alpamayo_ros.evaluation.interruption import uninterrupted


@contextmanager
def partial_folder(parent: Path, name: str) -> Iterator[Path]:
    """A temporary folder in `parent`, for what will be `name`. What is left in it at the end is removed.

    Raises:
        OSError: it can't be made.
    """
    with ExitStack() as stack:
        with uninterrupted():  # or else it could be there before anything knows that it has to go
            prefix = f".{name[:40]}."  # a file's name has at most 255 bytes
            folder = Path(tempfile.mkdtemp(prefix=prefix, suffix=".partial", dir=parent))
            stack.callback(_remove, folder)
        folder.chmod(0o755)
        yield folder


def put_in_place(new: Path, path: Path) -> None:
    """Rename a folder to `path`; one that is there goes, but not before the new one has its name.

    Raises:
        OSError: it can't be renamed; then the old one is where it was.
    """
    with uninterrupted():
        if not path.exists():
            new.rename(path)
            return
        earlier = new.with_name(f"{new.name[:40]}.earlier")
        path.rename(earlier)
        try:
            new.rename(path)
        except OSError:
            earlier.rename(path)
            raise
        shutil.rmtree(earlier, ignore_errors=True)


def fill(path: Path, new: Path) -> None:
    """Replace what is in the folder `path` by what is in `new`, a folder inside it; the folder itself stays.

    That works for mount points and the current folder too.

    Raises:
        OSError: something can't be moved; then what was there before is there again.
    """
    with uninterrupted(), partial_folder(path, "earlier") as earlier:
        moved: list[tuple[Path, Path]] = []
        try:
            for file in [file for file in path.iterdir() if file not in (new, earlier)]:
                moved.append((file, file.rename(earlier / file.name)))
            for file in list(new.iterdir()):
                moved.append((file, file.rename(path / file.name)))
        except OSError:
            for before, now in reversed(moved):
                now.rename(before)
            raise


def _remove(folder: Path) -> None:
    with uninterrupted():
        shutil.rmtree(folder, ignore_errors=True)
