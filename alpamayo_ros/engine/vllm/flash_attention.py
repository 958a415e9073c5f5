"""The same attention by vLLM's FlashAttention kernels, for CUDA; they follow the block table and can be captured."""

from __future__ import annotations

import torch
from torch import Tensor
from vllm.v1.attention.backends.fa_utils import get_flash_attn_version
from vllm.vllm_flash_attn import flash_attn_varlen_func

from alpamayo_ros.engine.vllm.kv_layout import LayerCache
from alpamayo_ros.engine.vllm.paged_attention import PagedPrefixes, Partial


class FlashAttention:
    """Both parts for one shape: R prefixes of G samples of N action tokens."""

    def __init__(self, rows: int, samples: int, tokens: int, head_dim: int, device: torch.device) -> None:
        self._version = get_flash_attn_version(head_size=head_dim)
        self._row_tokens, self._tokens = samples * tokens, tokens
        self._row_starts = torch.arange(rows + 1, dtype=torch.int32, device=device) * self._row_tokens
        self._own_starts = torch.arange(rows * samples + 1, dtype=torch.int32, device=device) * tokens

    def attend_to_prefix(self, query: Tensor, layer: LayerCache, prefixes: PagedPrefixes) -> Partial:
        """[R, G N, heads, dim]; the prefixes' lengths may differ from replay to replay of a graph."""
        mixed, weight = flash_attn_varlen_func(
            query.flatten(0, 1),
            layer.keys,
            layer.values,
            max_seqlen_q=self._row_tokens,
            cu_seqlens_q=self._row_starts,
            max_seqlen_k=prefixes.block_table.shape[1] * layer.keys.shape[1],
            seqused_k=prefixes.lengths,
            block_table=prefixes.block_table,
            causal=False,
            return_softmax_lse=True,
            fa_version=self._version,
        )
        return mixed.view(query.shape), weight.transpose(0, 1).reshape(query.shape[:3])

    def attend_to_own(self, query: Tensor, key: Tensor, value: Tensor) -> Partial:
        """[S, N, heads, dim]."""
        mixed, weight = flash_attn_varlen_func(
            query.flatten(0, 1),
            key.flatten(0, 1),
            value.flatten(0, 1),
            max_seqlen_q=self._tokens,
            cu_seqlens_q=self._own_starts,
            max_seqlen_k=self._tokens,
            cu_seqlens_k=self._own_starts,
            causal=False,
            return_softmax_lse=True,
            fa_version=self._version,
        )
        return mixed.view(query.shape), weight.transpose(0, 1).reshape(query.shape[:3])
