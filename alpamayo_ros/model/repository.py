"""Where model files lie: a local folder, or a Hugging Face repository by its name."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from alpamayo_ros.core.types import ConfigurationError

_REPOSITORY = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")


def is_repository_name(name: str) -> bool:
    """Whether this reads like "owner/name" on the Hugging Face hub."""
    return _REPOSITORY.fullmatch(name) is not None


def find_folder(name: str, patterns: Sequence[str], is_complete: Callable[[Path], bool]) -> Path:
    """The folder that `name` stands for: itself, or the local snapshot of a Hugging Face repository.

    A snapshot that is complete on this machine is used without asking the network, so that a vehicle starts the same
    with and without one. What an interrupted download has left is completed.

    Args:
        name: A folder, or "owner/name".
        patterns: The files that are needed, as globs.
        is_complete: Whether a snapshot has what it needs.

    Raises:
        ConfigurationError: no such folder; a repository that doesn't exist, needs a licence, or can't be reached.
    """
    folder = Path(name).expanduser()
    if folder.is_dir():
        return folder
    if folder.is_file():
        raise ConfigurationError(f"{name} is a file; give the folder that it lies in")
    if not is_repository_name(name):
        raise ConfigurationError(f"{name} is no folder; it has to be one, or a Hugging Face name like nvidia/Model")
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
