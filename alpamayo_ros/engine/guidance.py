"""Guidance by a route: what the model would do without it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from alpamayo_ros.engine.resident_model import ResidentModel
from alpamayo_ros.model.backbone import PromptBatch
from alpamayo_ros.model.prompt import Prompt


def read_without_route(
    model: ResidentModel,
    prompt: Prompt,
    batch: PromptBatch,
    cache: Any,
    written: Sequence[Sequence[int]],
    samples: int,
) -> Any:
    """What guidance compares with: the prompt without its route, and the same reasoning after it.

    Everything before the route is in the cache already; the rest is read in one pass.

    Args:
        model, prompt, batch, cache: The guided prompt, and what was read of it.
        written: Per row, the tokens after the prompt, `<|traj_future_start|>` included.
        samples: How many trajectories will read each row.
    """
    branch, rest = branch_without_route(model, prompt, cache, written, samples)
    model.backbone.extend(batch, branch, rest, logits=0)
    return branch


def branch_without_route(
    model: ResidentModel, prompt: Prompt, cache: Any, written: Sequence[Sequence[int]], samples: int
) -> tuple[Any, Tensor]:
    """A cache that ends before the route, and the tokens [rows, n] to be read into it; see `read_without_route`."""
    route = prompt.route
    rest = prompt.token_ids[route.stop :]
    longest = max(len(tokens) for tokens in written)
    padded = [[*rest, *tokens, *[model.vocabulary.pad] * (longest - len(tokens))] for tokens in written]
    capacity = route.start + len(padded[0]) + model.room(samples)
    return cache.branch(range(len(written)), route.start, capacity), torch.tensor(padded)
