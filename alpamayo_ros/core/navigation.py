"""The navigation text in force."""

from __future__ import annotations

import re

LONGEST_TEXT = 2000  # characters; a text of megabytes would keep the model from driving for seconds
# `<|route_end|>`, `<i7>`, `</think>`: models take such words as commands, and an engine refuses the whole tick
CONTROL_TOKEN = re.compile(r"<[^<>\s]+>")


def text_fault(text: str) -> str | None:
    """What makes a text for the model unusable, in words."""
    if len(text) > LONGEST_TEXT:
        return f"it has {len(text)} characters, expected at most {LONGEST_TEXT}"
    token = CONTROL_TOKEN.search(text)
    if token is not None:
        return f"it contains {token[0]}, which a model may take for a command; expected plain words"
    return None


class Navigation:
    """A text, and how long ago it came.

    Args:
        timeout: s after which a text is no longer in force; 0: never.
    """

    def __init__(self, timeout: float) -> None:
        self.text = ""
        self._timeout = timeout
        self._since_ns = 0

    def set(self, text: str, now_ns: int) -> None:
        """A text has come; an empty one, or one that can't be used, clears it."""
        self.text, self._since_ns = "" if text_fault(text.strip()) else text.strip(), now_ns

    def restart(self, now_ns: int) -> None:
        """The clock has jumped: the text, which may be latched, is still in force, and its age counts from now."""
        self._since_ns = now_ns

    def age(self, now_ns: int) -> float | None:
        """Seconds since the text came; None when none is in force."""
        age = (now_ns - self._since_ns) * 1e-9
        return age if self.text and (self._timeout == 0 or age <= self._timeout) else None
