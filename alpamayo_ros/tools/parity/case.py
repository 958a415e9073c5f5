"""What a checker of one kind of golden file gives: cases that can be run one by one, and their results."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor


class Status(str, Enum):
    """The first word of a line."""

    PASS = "PASS"
    FAIL = "FAIL"
    NOT_SUPPORTED = "N/S"
    NOT_APPLICABLE = "N/A"  # not counted


@dataclass(frozen=True)
class CaseResult:
    """One line of the output."""

    name: str  # file/case/quantity
    status: Status
    max_error: float = 0.0
    tolerance: float = 0.0
    message: str = ""  # why it isn't supported, or what failed

    def line(self) -> str:
        """`PASS|FAIL name max_error tolerance`, or `N/S|N/A name reason`."""
        if self.status in (Status.NOT_SUPPORTED, Status.NOT_APPLICABLE):
            return f"{self.status.value} {self.name} {self.message}"
        return f"{self.status.value} {self.name} {self.max_error:.3g} {self.tolerance:g} {self.message}".rstrip()


@dataclass(frozen=True)
class Case:
    """Something to check: `check` does the work when it is called, and gives results named `name` or `name/...`.

    An exception out of `check` is a failure of this case, the others go on.
    """

    name: str
    check: Callable[[], Iterable[CaseResult]]


@dataclass(frozen=True)
class Machine:
    """What is checked: where tensors lie, and the type of a whole model's weights (parts are checked in float32)."""

    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    dtype: torch.dtype = torch.float32

    def tensor(self, values: ArrayLike) -> Tensor:
        """A copy of recorded values there, in their own type."""
        return torch.from_numpy(np.array(values)).to(self.device)


@dataclass(frozen=True)
class Checker:
    """Finds the cases of the files whose names match `pattern`, a glob such as "end_to_end_*.npz".

    `cases` is given such a file and lists what is in it without doing the work. Files beside it are at `path.parent`.
    """

    pattern: str
    cases: Callable[[Path, Machine], Iterable[Case]]


def close(name: str, actual: Tensor | ArrayLike, expected: ArrayLike, tolerance: float) -> CaseResult:
    """Compare in the maximum norm. Another shape, or a NaN on one side only, is an infinite error."""
    left, right = _as_float(actual), _as_float(expected)
    if left.shape != right.shape:
        message = f"the shape is {left.shape}, expected is {right.shape}"
        return CaseResult(name, Status.FAIL, float("inf"), tolerance, message)
    same = (left == right) | (np.isnan(left) & np.isnan(right))
    with np.errstate(invalid="ignore"):
        error = np.where(same, 0.0, np.abs(left - right))
    worst = float(np.nan_to_num(error, nan=np.inf).max(initial=0.0))
    return CaseResult(name, Status.PASS if worst <= tolerance else Status.FAIL, worst, tolerance)


def equal(name: str, actual: Tensor | ArrayLike, expected: ArrayLike) -> CaseResult:
    """Compare exactly: token ids, bins, masks, lengths. The error is the largest difference."""
    return close(name, actual, expected, 0.0)


def same_text(name: str, actual: str, expected: str) -> CaseResult:
    """Compare texts exactly. The error is 1 when they differ."""
    if actual == expected:
        return CaseResult(name, Status.PASS)
    return CaseResult(name, Status.FAIL, 1.0, 0.0, f"the text is {actual!r}, expected is {expected!r}")


def not_supported(name: str, reason: str) -> CaseResult:
    """A case that can't be run, and why."""
    return CaseResult(name, Status.NOT_SUPPORTED, message=reason)


def not_applicable(name: str, reason: str) -> CaseResult:
    """Something that can't exist in the engine that is checked, and why."""
    return CaseResult(name, Status.NOT_APPLICABLE, message=reason)


def _as_float(values: Tensor | ArrayLike) -> np.ndarray:
    if isinstance(values, Tensor):
        values = values.detach().cpu().double().numpy()
    return np.asarray(values).astype(np.float64)
