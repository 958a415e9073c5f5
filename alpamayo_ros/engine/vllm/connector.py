"""Keeps a finished request's KV blocks where they are until the action expert has read them.

A KV connector is vLLM's way to hand KV to others. This one moves nothing: on the scheduler's side it asks for delay in
freeing the blocks of requests that want it, on the worker's side it knows the live cache tensors and reports releases.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor
from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorBase_V1,
    KVConnectorMetadata,
    KVConnectorRole,
)

from alpamayo_ros.engine.vllm.jobs import PIN, PINNED

FINISHED = ("FINISHED_STOPPED", "FINISHED_LENGTH_CAPPED")  # not aborted or failed: nobody would release those


class NothingToSay(KVConnectorMetadata):
    """From the scheduler to the workers: they need nothing."""


class PinningConnector(KVConnectorBase_V1):
    """Loads and saves nothing; pins the blocks of finished requests that ask for it."""

    def __init__(self, vllm_config: Any, role: KVConnectorRole, kv_cache_config: Any) -> None:
        super().__init__(vllm_config, role, kv_cache_config)
        self.kv_caches: dict[str, Tensor] = {}  # by layer name
        self._released: set[str] = set()

    # In the scheduler

    def request_finished(self, request: Any, block_ids: list[int]) -> tuple[bool, dict[str, Any] | None]:
        """Pin, or let the blocks go."""
        wanted = (request.kv_transfer_params or {}).get(PIN, False)
        if not wanted or not str(request.status).endswith(FINISHED):
            return False, None
        # the token sampled last was never read, so it has no KV
        length = min(request.num_computed_tokens, request.num_tokens - 1)
        return True, {PINNED: {"request": request.request_id, "block_ids": list(block_ids), "length": length}}

    def get_num_new_matched_tokens(self, request: Any, num_computed_tokens: int) -> tuple[int, bool]:
        """Nothing is loaded."""
        return 0, False

    def update_state_after_alloc(self, request: Any, blocks: Any, num_external_tokens: int) -> None:
        """Nothing is loaded."""

    def build_connector_meta(self, scheduler_output: Any) -> KVConnectorMetadata:
        """Nothing to say."""
        return NothingToSay()

    # In the workers

    def register_kv_caches(self, kv_caches: dict[str, Tensor]) -> None:
        """Remember the live tensors."""
        self.kv_caches = kv_caches

    def release(self, requests: list[str]) -> None:
        """Let go of these requests' blocks at the next step."""
        self._released.update(requests)

    def get_finished(self, finished_req_ids: set[str]) -> tuple[set[str] | None, set[str] | None]:
        """Report what was released."""
        released, self._released = self._released, set()
        return released or None, None

    def start_load_kv(self, forward_context: Any, **_: Any) -> None:
        """Nothing is loaded."""

    def wait_for_layer_load(self, layer_name: str) -> None:
        """Nothing is loaded."""

    def save_kv_layer(self, layer_name: str, kv_layer: Tensor, attn_metadata: Any, **_: Any) -> None:
        """Nothing is saved."""

    def wait_for_save(self) -> None:
        """Nothing is saved."""
