"""Where model files lie: shipped with the package, a local folder, or a Hugging Face repository by its name."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from alpamayo_ros.core.types import ConfigurationError

SHIPPED = Path(__file__).parents[1] / "checkpoints"  # folders that the package brings along, by their names
_REPOSITORY = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")


def is_repository_name(name: str) -> bool:
    """Whether this reads like "owner/name" on the Hugging Face hub."""
    return _REPOSITORY.fullmatch(name) is not None


def shipped_names() -> list[str]:
    """The checkpoints that come with the package. A folder of that name is reached by a path like ./mini."""
    return sorted(folder.parent.name for folder in SHIPPED.glob("*/config.json"))


def find_folder(name: str, patterns: Sequence[str], is_complete: Callable[[Path], bool]) -> Path:
    """The folder that `name` stands for: a shipped one, itself, or the local snapshot of a Hugging Face repository.

    A snapshot that is complete on this machine is used without asking the network, so that a vehicle starts the same
    with and without one. What an interrupted download has left is completed.

    Args:
        name: "mini" for the checkpoint that is shipped, a folder, or "owner/name".
        patterns: The files that are needed, as globs.
        is_complete: Whether a snapshot has what it needs.

    Raises:
        ConfigurationError: no such folder; a repository that doesn't exist, needs a licence, or can't be reached.
    """
    if name in shipped_names():
        return SHIPPED / name
    folder = Path(name).expanduser()
    if folder.is_dir():
        return folder
    if folder.is_file():
        raise ConfigurationError(f"{name} is a file; give the folder that it lies in")
    if not is_repository_name(name):
        raise ConfigurationError(
            f"{name} is no folder; it has to be one, or a Hugging Face name like nvidia/Model, "
            f"or what comes with the package: {', '.join(shipped_names()) or 'nothing here'}"
        )
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import GatedRepoError, HfHubHTTPError, LocalEntryNotFoundError, RepositoryNotFoundError

    with suppress(LocalEntryNotFoundError, OSError, ValueError):  # not there, or known to be incomplete
        snapshot = Path(snapshot_download(name, allow_patterns=list(patterns), local_files_only=True))
        if is_complete(snapshot):
            return snapshot
    try:
        return Path(snapshot_download(name, allow_patterns=list(patterns)))
    except GatedRepoError as error:
        raise ConfigurationError(
            f"{name} on Hugging Face is gated: accept its licence on https://huggingface.co/{name}, then log in with "
            "`hf auth login`"
        ) from error
    except RepositoryNotFoundError as error:
        raise ConfigurationError(
            f"there is no folder {name}, and no such repository on Hugging Face (or it is private: `hf auth login`)"
        ) from error
    except (LocalEntryNotFoundError, HfHubHTTPError, OSError) as error:
        raise ConfigurationError(
            f"there is no folder {name}, the local Hugging Face cache doesn't have all of it, and the hub can't be "
            f"reached: download it where there is a network (`hf download {name}`), or give a folder"
        ) from error
