"""Guidance by a route: what the model would do without it."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from alpamayo_ros.model.alpamayo import AlpamayoModel
from alpamayo_ros.model.backbone import PromptBatch
from alpamayo_ros.model.kv_cache import KVCache
from alpamayo_ros.model.prompt import Prompt


def read_without_route(
    model: AlpamayoModel,
    prompt: Prompt,
    batch: PromptBatch,
    cache: KVCache,
    written: Sequence[Sequence[int]],
    samples: int,
) -> KVCache:
    """What guidance compares with: the prompt without its route, and the same reasoning after it.

    Everything before the route is in the cache already; the rest is read in one pass.

    Args:
        model, prompt, batch, cache: The guided prompt, and what was read of it.
        written: Per row, the tokens after the prompt, `<|traj_future_start|>` included.
        samples: How many trajectories will read each row.
    """
    route = prompt.route
    rest = prompt.token_ids[route.stop :]
    longest = max(len(tokens) for tokens in written)
    padded = [[*rest, *tokens, *[model.vocabulary.pad] * (longest - len(tokens))] for tokens in written]
    room = samples * model.config.action_space.n_waypoints
    branch = cache.branch(range(len(written)), route.start, route.start + len(padded[0]) + room)
    model.backbone.extend(batch, branch, torch.tensor(padded, device=model.device))
    return branch
