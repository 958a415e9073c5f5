"""How far a long command is: a bar on a terminal, and elsewhere, in a log, now and then a line."""

from __future__ import annotations

import io
import sys
import time
from collections.abc import Iterable
from typing import Any

from tqdm import tqdm

SELDOM = 10.0  # s between lines
LINE = "{desc}: {n_fmt} of {total_fmt}{unit} in {elapsed}"
LINE_WITHOUT_END = "{desc}: {n_fmt}{unit} in {elapsed}"


def progress(items: Iterable[Any] | None = None, **options: Any) -> tqdm:
    """A bar of tqdm, on stderr; `options` are tqdm's. It is gone when it is done, and what is short prints no line."""
    if sys.stderr.isatty():
        return tqdm(items, leave=False, **options)
    return _Lines(items, **options)


class _Lines(tqdm):
    def __init__(self, items: Iterable[Any] | None = None, **options: Any) -> None:
        self._said = time.monotonic()
        options["bar_format"] = options.get("bar_format", "").replace("|{bar}| ", "") or None
        super().__init__(items, leave=False, mininterval=SELDOM, file=io.StringIO(), **options)
        if options["bar_format"] is None:
            self.bar_format = LINE if self.total is not None else LINE_WITHOUT_END

    def set_description(self, desc: str | None = None, refresh: bool | None = True) -> None:
        """Without the colon that tqdm adds: the line has its own."""
        self.set_description_str(desc, refresh)

    def display(self, msg: str | None = None, pos: int | None = None) -> None:
        """Print the line if it is time for one; tqdm calls this for every change that it would show."""
        if msg is None and time.monotonic() - self._said >= SELDOM:
            self._said = time.monotonic()
            print(self, file=sys.stderr, flush=True)
