"""Attention: of a whole prompt to itself, and of new tokens to what the cache holds."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

from alpamayo_ros.engine.flow.paged_cache import LayerCache
from alpamayo_ros.engine.native.text_model import NewTokens

# query [R, M, heads, dim]; keys and values of a layer [blocks, block_size, kv_heads, dim], the M new tokens among them;
# block table [R, most blocks] int32; tokens before the new ones [R] int32; how many of them all rows have in the same
# blocks [1] int32, or None -> [R, M, heads, dim]
AttendCausal = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor | None], Tensor]

# a layer's cache, one token that isn't in it yet, block table [1, most blocks] int32, tokens before [1] int32
# -> [1, heads, dim], and the token is in the cache; or None, and nothing was done: not for these sizes, or this GPU
AttendOne = Callable[[LayerCache, NewTokens, Tensor, Tensor], Tensor | None]

# cuDNN, the fastest for prompts on a Hopper GPU, takes 0.6 s to plan a new length: so lengths are rounded up, and those
# of a rig's prompts are planned before the first tick. Others are left to FlashAttention.
PLANNED_STEP = 128  # tokens
_CHOOSING = threading.Lock()
_WITHOUT_PLANS = (SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH)
_BACKENDS = (SDPBackend.CUDNN_ATTENTION, *_WITHOUT_PLANS)


@contextmanager
def fastest_attention(backends: Sequence[SDPBackend] = _BACKENDS) -> Iterator[None]:
    """PyTorch's attention by the first of these kernels that can do it, inside this.

    The choice is the process's, not the thread's, and undone at the end: two threads that overlapped would undo it for
    each other. So one at a time may be inside, for as long as it takes to launch.
    """
    with _CHOOSING, sdpa_kernel(list(backends), set_priority=True):
        yield


class PromptAttention:
    """Causal attention of one sequence.

    Args:
        planned: Lengths, in tokens, that `plan` is for.
    """

    def __init__(self, planned: range) -> None:
        self._planned = range(padded(planned.start), padded(planned.stop) + 1, PLANNED_STEP)

    def plan(self, heads: int, keys: Tensor, values: Tensor) -> None:
        """Make the plans, which hold for the calling thread; the arguments are as in a call."""
        for length in self._planned:
            self(keys.new_zeros(length, heads, keys.shape[2]), keys, values)

    def __call__(self, query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """Let a sequence attend to itself; it may be followed by anything finite.

        Args:
            query: [T, heads, dim].
            keys, values: [at least `padded` T, kv_heads, dim].

        Returns:
            [T, heads, dim].
        """
        count = len(query)
        length = padded(count)
        if not query.is_cuda:
            return _attend(query, keys[:count], values[:count])
        if length not in self._planned:
            with fastest_attention(_WITHOUT_PLANS):
                return _attend(query, keys[:count], values[:count])
        longer = functional.pad(query, (0, 0, 0, 0, 0, length - count))
        with fastest_attention():
            return _attend(longer, keys[:length], values[:length])[:count]


def padded(tokens: int) -> int:
    """The length that is planned for so many tokens."""
    return -(-tokens // PLANNED_STEP) * PLANNED_STEP


def _attend(query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    q, k, v = (each.transpose(0, 1)[None] for each in (query, keys, values))
    mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
    return mixed[0].transpose(0, 1)


def attend_causal(
    query: Tensor, keys: Tensor, values: Tensor, block_table: Tensor, lengths: Tensor, shared: Tensor | None
) -> Tensor:
    """In plain torch: every row's blocks are gathered first. See AttendCausal."""
    blocks = block_table.long()
    row_keys, row_values = (cache[blocks].flatten(1, 2).transpose(1, 2) for cache in (keys, values))
    column = torch.arange(row_keys.shape[2], device=query.device)
    last = lengths[:, None] + torch.arange(query.shape[1], device=query.device)
    seen = column <= last[..., None]  # [R, M, columns]
    mixed = functional.scaled_dot_product_attention(
        query.transpose(1, 2), row_keys, row_values, attn_mask=seen[:, None], enable_gqa=True
    )
    return mixed.transpose(1, 2)


def causal_attention(device: torch.device) -> AttendCausal:
    """The kernel for this device."""
    if device.type != "cuda":
        return attend_causal
    from alpamayo_ros.engine.kernels.split_attention import attend_causal as by_kernel  # Triton is there where CUDA is

    return by_kernel


def attention_of_one(device: torch.device) -> AttendOne | None:
    """The kernel that does all between a decoded token's products, and attention with it; None: there is none."""
    if device.type != "cuda":
        return None
    from alpamayo_ros.engine.kernels.between_products import Destination, HeadNorms
    from alpamayo_ros.engine.kernels.decode_attention import attend_new_token

    def by_kernel(layer: LayerCache, new: NewTokens, block_table: Tensor, lengths: Tensor) -> Tensor | None:
        norms, to = HeadNorms(*new.head_norms, new.eps), Destination(layer.keys, layer.values, new.slots)
        return attend_new_token(new.states, norms, *new.rotary, to, block_table, lengths)

    return by_kernel
