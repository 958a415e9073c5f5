"""Writing the reasoning, token by token: who chooses them, when it ends, and what is forced then."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import torch
from torch import Tensor

from alpamayo_ros.core.types import SamplingOptions
from alpamayo_ros.engine.resident_model import Cache, LanguageModel
from alpamayo_ros.engine.sampling import DrawTokens, Key, draw_each
from alpamayo_ros.model.backbone import PromptBatch
from alpamayo_ros.model.vocabulary import Vocabulary

CacheT = TypeVar("CacheT", bound=Cache)
Choose = Callable[[Tensor], Sequence[int] | None]  # logits [B, V] -> a token per row, or None: enough


def write(
    backbone: LanguageModel[CacheT],
    batch: PromptBatch,
    cache: CacheT,
    logits: Tensor,
    choose: Choose,
    drafts: Sequence[int] = (),
) -> int:
    """Let `choose` write tokens after a prompt; each is read into the cache.

    Args:
        backbone: The model.
        batch: What was read.
        cache: Holds the prompt and the drafts.
        logits: [B, 1 + drafts, V]: what comes after the prompt, and after each draft.
        choose: Gets the logits of the next token. Its None ends the writing.
        drafts: Tokens that were read ahead, for one row alone. They stand as long as `choose` agrees; the result is
            the same without them.

    Returns:
        How many drafts stood.
    """
    start = cache.length - len(drafts)
    accepted = 0
    while (tokens := choose(logits[:, 0])) is not None:
        if accepted < len(drafts) and tokens[0] == drafts[accepted]:
            accepted += 1
            logits = logits[:, 1:]
            continue
        if accepted < len(drafts):
            cache.truncate(start + accepted)
            drafts = drafts[:accepted]
        logits = backbone.extend(batch, cache, torch.tensor(tokens, device=logits.device)[:, None])
    if accepted < len(drafts):
        cache.truncate(start + accepted)
    return accepted


@dataclass
class Text:
    """One row's reasoning as it is written."""

    sample: int  # by this and the seed its noise is keyed
    token_ids: list[int] = field(default_factory=list)
    finish_reason: str = ""  # once it ended: stop, length, deadline or forced
    seed: int = 0
    _forced: list[int] = field(default_factory=list)


def closing_tokens(vocabulary: Vocabulary, token_ids: Sequence[int]) -> list[int]:
    """What has to follow a reasoning that broke off."""
    closed = vocabulary.reasoning_end in token_ids
    return [vocabulary.future_start] if closed else [vocabulary.reasoning_end, vocabulary.future_start]


def closed_text(
    vocabulary: Vocabulary, options: SamplingOptions, sample: int, token_ids: Sequence[int], late: bool
) -> Text:
    """The reasoning that was written as a whole, closed by the Reasoner's rules.

    Args:
        vocabulary, options, sample: As the Reasoner has them.
        token_ids: What was written, up to `<|traj_future_start|>`, the end of the turn, the cap or the deadline.
        late: Whether the deadline ended it.
    """
    tokens = list(token_ids)
    if tokens[-1:] == [vocabulary.future_start]:
        return Text(sample, tokens, "stop")
    if tokens[-1:] == [vocabulary.turn_end]:
        reason = "forced"
        tokens.pop()
    else:
        reason = "deadline" if late and len(tokens) < options.max_reasoning_tokens else "length"
    return Text(sample, tokens + closing_tokens(vocabulary, tokens), reason)


class Reasoner:
    """Samples tokens until `<|traj_future_start|>`; forces `<|cot_end|><|traj_future_start|>` where that doesn't come.

    Finish reasons: "stop" by itself; "length" at the cap; "deadline" when the time is used up; "forced" when the model
    ended its turn without a trajectory.
    """

    def __init__(
        self,
        vocabulary: Vocabulary,
        options: SamplingOptions,
        texts: Sequence[Text],
        draw: DrawTokens = draw_each,
    ) -> None:
        """Write `texts`, which are empty, side by side; the seed of the options doesn't count."""
        self.texts = texts
        self._vocabulary = vocabulary
        self._options = options
        self._draw = draw
        self._foreseen: list[int] = []
        self._started: float | None = None

    def foresee(self, logits: Tensor, drafts: Sequence[int]) -> None:
        """Draw the next tokens of the one text that there is at once.

        It saves as many draws one by one; `__call__` is still to be given the same logits.

        Args:
            logits: [1 + drafts, V]: what comes now, and after each draft.
            drafts: As `write` gets them.
        """
        text = self.texts[0]
        first = len(text.token_ids)
        keys = [(text.seed, text.sample, first + index) for index in range(len(logits))]
        drawn = self._drawn(logits, keys)
        standing = [token == draft for token, draft in zip(drawn, drafts, strict=False)]
        self._foreseen = drawn[: 1 + (standing.index(False) if False in standing else len(drafts))]

    @property
    def ended(self) -> bool:
        """Whether nothing is left to be written."""
        return not self._writing()

    @property
    def goes_on(self) -> bool:
        """Whether all that is written next is drawn, and after plain tokens what comes then as well."""
        texts = [self.texts[row] for row in self._writing()]
        room = self._options.max_reasoning_tokens - 1
        return bool(texts) and all(not text._forced and len(text.token_ids) < room for text in texts)

    def keys(self) -> list[Key]:
        """Of every row's next draw; a row that has ended draws nothing that counts."""
        return [(text.seed, text.sample, len(text.token_ids)) for text in self.texts]

    def __call__(self, logits: Tensor) -> list[int] | None:
        """The next token of every row; rows that have ended get padding."""
        drawing = self._drawing()
        if self._foreseen and drawing:
            drawn = [self._foreseen.pop(0)]
        elif drawing:
            keys = self.keys()
            some = logits if len(drawing) == len(logits) else logits[drawing]
            drawn = self._drawn(some, [keys[row] for row in drawing])
        else:
            drawn = []
        tokens = [self._vocabulary.pad] * len(self.texts)
        for row, token in zip(drawing, drawn, strict=True):
            tokens[row] = token
        return self._written(tokens)

    def forced(self) -> list[int] | None:
        """The next tokens, if there are some and none of them is drawn."""
        if self._drawing():
            return None
        return self._written([self._vocabulary.pad] * len(self.texts))

    def with_drawn(self, tokens: Sequence[int]) -> list[int] | None:
        """The next tokens, where these were drawn elsewhere, one for every row; they stay in rows that have ended."""
        self._begin()
        self._drawing()
        return self._written(tokens)

    def _writing(self) -> list[int]:
        """Rows that haven't ended."""
        done = self._vocabulary.future_start
        return [row for row, text in enumerate(self.texts) if text.token_ids[-1:] != [done]]

    def _drawing(self) -> list[int]:
        """Rows whose next token is drawn, once the cap and the deadline have ended others."""
        writing = self._writing()
        late = bool(writing) and self._is_late()
        for row in writing:
            self._end_by_rule(self.texts[row], late)
        return [row for row in writing if not self.texts[row]._forced]

    def _written(self, drawn: Sequence[int]) -> list[int] | None:
        """Write a token into every row that hasn't ended: the drawn one, or what is forced. None: all have ended."""
        writing = self._writing()
        if not writing:
            return None
        tokens = list(drawn)
        for row in writing:
            text = self.texts[row]
            tokens[row] = text._forced.pop(0) if text._forced else self._taken(text, tokens[row])
            text.token_ids.append(tokens[row])
        return tokens

    def _drawn(self, logits: Tensor, keys: Sequence[Key]) -> list[int]:
        """A token per row, none of a trajectory."""
        logits[:, self._vocabulary.trajectory_ids.start : self._vocabulary.trajectory_ids.stop] = -torch.inf
        drawn = self._draw(logits, self._options.temperature, self._options.top_p, keys)
        self._begin()
        return drawn

    def _end_by_rule(self, text: Text, late: bool) -> None:
        """At the cap or the deadline."""
        if text.finish_reason:
            return
        if len(text.token_ids) >= self._options.max_reasoning_tokens:
            self._end(text, "length")
        elif late:
            self._end(text, "deadline")

    def _taken(self, text: Text, token: int) -> int:
        """What is written when this token was drawn."""
        if token == self._vocabulary.turn_end:
            self._end(text, "forced")
            return text._forced.pop(0)
        if token == self._vocabulary.future_start:
            text.finish_reason = "stop"
        return token

    def _end(self, text: Text, reason: str) -> None:
        text.finish_reason = reason
        text._forced = closing_tokens(self._vocabulary, text.token_ids)

    def _begin(self) -> None:
        """The time runs from the first token that is drawn: before, a device may still be reading the prompt."""
        if self._started is None:
            self._started = time.monotonic()

    def _is_late(self) -> bool:
        deadline = self._options.deadline_ms
        used = 0.0 if self._started is None else time.monotonic() - self._started
        return deadline is not None and used * 1e3 >= deadline


def answer_ends(vocabulary: Vocabulary) -> tuple[int, ...]:
    """Tokens that end an answer."""
    return vocabulary.answer_end, vocabulary.turn_end, vocabulary.pad


def answer_text(vocabulary: Vocabulary, token_ids: Sequence[int]) -> str:
    """The answer in words; one that the cap has cut counts as well."""
    answer = [token for token in token_ids if token not in (vocabulary.turn_end, vocabulary.pad)]
    return vocabulary.text_between([vocabulary.answer_start, *answer, vocabulary.answer_end], "answer").strip()


class Answerer:
    """Samples an answer until the model ends it, or the cap."""

    def __init__(self, vocabulary: Vocabulary, options: SamplingOptions, draw: DrawTokens = draw_each) -> None:
        self._draw = draw
        self.token_ids: list[int] = []
        self._ends = answer_ends(vocabulary)
        self._options = options

    def __call__(self, logits: Tensor) -> list[int] | None:
        """The next token, or None behind the end."""
        if len(self.token_ids) >= self._options.max_reasoning_tokens:
            return None
        if self.token_ids and self.token_ids[-1] in self._ends:
            return None
        key = (self._options.seed, 0, len(self.token_ids))
        self.token_ids += self._draw(logits[:1], self._options.temperature, self._options.top_p, [key])
        return self.token_ids[-1:]
