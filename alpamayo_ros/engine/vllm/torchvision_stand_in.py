"""Lets vLLM's Qwen3-VL be imported where torchvision isn't installed.

That module imports Hugging Face's image processors, and they import torchvision. This package has an image processor of
its own and calls none of theirs, so an empty stand-in is enough, and only while the import runs.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from types import ModuleType

from transformers.utils.import_utils import is_torchvision_available

NAMES = ("torchvision", "torchvision.transforms", "torchvision.transforms.v2", "torchvision.transforms.v2.functional")


@contextmanager
def torchvision_or_stand_in() -> Iterator[None]:
    """Inside, `import torchvision` works: the real one where it is, else an empty one."""
    if find_spec("torchvision") is not None:
        yield
        return
    is_torchvision_available()  # transformers remembers the answer: it has to be the true one
    for name in NAMES:
        module = ModuleType(name)
        module.__spec__ = importlib.machinery.ModuleSpec(name, None, is_package=True)
        module.__path__ = []
        sys.modules[name] = module
        parent, _, leaf = name.rpartition(".")
        if parent:
            setattr(sys.modules[parent], leaf, module)
    try:
        yield
    finally:
        for name in NAMES:
            del sys.modules[name]
