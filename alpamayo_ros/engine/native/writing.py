"""Writing the reasoning a step ahead: a token is read on the device while the host learns which one it is.

The same tokens as by `write` in engine/reasoning.py, with two differences in how they are read: the step that reads a
token is queued before the host has seen it, and the tokens that close a reasoning are left to be read in one pass with
its last, and with what guidance reads.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from alpamayo_ros.core.types import SamplingOptions
from alpamayo_ros.engine.native.backbone import NativeBackbone
from alpamayo_ros.engine.native.following import Following
from alpamayo_ros.engine.native.kv_cache import PagedCache
from alpamayo_ros.engine.reasoning import Reasoner
from alpamayo_ros.model.backbone import PromptBatch

NOTHING = torch.empty(1, 0, dtype=torch.int64)


def write_ahead(
    backbone: NativeBackbone,
    batch: PromptBatch,
    cache: PagedCache,
    logits: Tensor,
    reasoner: Reasoner,
    drafts: Sequence[int],
    options: SamplingOptions,
) -> tuple[int, Tensor]:
    """Let the reasoner write after a prompt; see `write`.

    Args:
        backbone, batch, cache, logits, drafts: As there.
        reasoner: Empty, but for what it has foreseen of the drafts.
        options: The reasoner's.

    Returns:
        How many drafts stood, and the tokens [rows, n] at the end of what was written that aren't read yet.
    """
    start = cache.length - len(drafts)
    accepted = 0
    if not drafts and reasoner.goes_on:
        keys = reasoner.keys()
        following = backbone.follow_prompt(batch, cache, logits[:, 0], keys, options.temperature, options.top_p)
        tokens = _follow(following, cache, reasoner)
    else:
        tokens = reasoner(logits[:, 0])
        while accepted < len(drafts) and tokens is not None and tokens[0] == drafts[accepted]:
            accepted += 1
            tokens = reasoner(logits[:, accepted])
        cache.truncate(start + accepted)
    while tokens is not None:
        columns = [tokens]
        while (closing := reasoner.forced()) is not None:
            columns.append(closing)
        if reasoner.ended:
            return accepted, torch.tensor(columns).T
        following = backbone.follow(
            batch, cache, torch.tensor(columns).T, reasoner.keys(), options.temperature, options.top_p
        )
        cache.grow(1)  # what was written is being read
        tokens = _follow(following, cache, reasoner)
    return accepted, NOTHING.expand(len(logits), 0)


def _follow(following: Following, cache: PagedCache, reasoner: Reasoner) -> list[int] | None:
    """Write what is drawn, and read it.

    Args:
        following: It draws what is written next.
        cache: Its columns are counted here.
        reasoner: Its next tokens are drawn ones.

    Returns:
        The first tokens that aren't read, since another was forced in the place of a drawn one or the cap is near.
        None: all is written and read.
    """
    while True:
        ahead = reasoner.goes_on
        if ahead:
            following.go_on()
        drawn = following.drawn()
        written = reasoner.with_drawn(drawn)
        if not ahead or written != drawn:
            return written
        cache.grow(1)  # the step under way reads what was written
        if reasoner.ended:
            return None
