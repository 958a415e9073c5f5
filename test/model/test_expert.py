"""The expert against transformers' own text layers, and its prefix."""

from collections.abc import Sequence

import pytest
import torch
from torch import Tensor
from transformers.cache_utils import DynamicCache
from transformers.models.qwen3_vl.configuration_qwen3_vl import Qwen3VLTextConfig
from transformers.models.qwen3_vl.modeling_qwen3_vl import Qwen3VLTextModel

from alpamayo_ros.core.types import ConfigurationError
from alpamayo_ros.model.expert import Expert
from alpamayo_ros.model.geometry import DecoderGeometry
from alpamayo_ros.model.kv_cache import KVCache, Prefix

GEOMETRY = DecoderGeometry(
    hidden_size=24,
    intermediate_size=40,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=16,
    rms_norm_eps=1e-6,
    rope_theta=5e6,
)
TOKENS = 6  # of an action


def reference() -> Qwen3VLTextModel:
    torch.manual_seed(0)
    config = Qwen3VLTextConfig(
        hidden_size=24,
        intermediate_size=40,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        vocab_size=3,
        rope_parameters={
            "rope_type": "default",
            "rope_theta": 5e6,
            "mrope_section": [4, 2, 2],
            "mrope_interleaved": True,
        },
    )
    model = Qwen3VLTextModel._from_config(config, attn_implementation="eager").eval()
    for parameter in model.parameters():
        parameter.data = torch.randn_like(parameter) * 0.3
    return model


def expert_like(model: Qwen3VLTextModel) -> Expert:
    expert = Expert(GEOMETRY).eval()
    weights = {name: tensor for name, tensor in model.state_dict().items() if name != "embed_tokens.weight"}
    expert.load_state_dict(weights)
    return expert


def random_cache(rows: int, length: int, room: int) -> KVCache:
    generator = torch.Generator().manual_seed(rows * 100 + length)
    cache = KVCache(GEOMETRY.num_hidden_layers, length + room)
    for layer in range(GEOMETRY.num_hidden_layers):
        keys, values = torch.randn(
            2, rows, GEOMETRY.num_key_value_heads, length, GEOMETRY.head_dim, generator=generator
        )
        cache.update(keys, values, layer)
    return cache


def by_transformers(model: Qwen3VLTextModel, x: Tensor, cache: KVCache, ends: Sequence[int], delta: int) -> Tensor:
    """One action sequence per row of the cache, the way NVIDIA's code calls the layers."""
    theirs = DynamicCache()
    for layer in range(GEOMETRY.num_hidden_layers):
        theirs.update(*(part.clone() for part in cache.written(layer)), layer)
    mask = torch.zeros(len(x), 1, TOKENS, cache.length + TOKENS)
    for row, end in enumerate(ends):
        mask[row, :, :, end : cache.length] = torch.finfo(torch.float32).min
    positions = torch.tensor(ends)[:, None] + delta + torch.arange(TOKENS)
    out = model(inputs_embeds=x, past_key_values=theirs, attention_mask=mask, position_ids=positions.expand(3, -1, -1))
    return out.last_hidden_state


@pytest.mark.parametrize("ends", [(20, 20), (20, 13), (9, 1)])
@torch.inference_mode()
def test_it_is_transformers_layers_over_the_prefix(ends: tuple[int, int]) -> None:
    model = reference()
    cache = random_cache(2, 20, TOKENS)
    x = torch.randn(2, TOKENS, 24, generator=torch.Generator().manual_seed(1))
    expected = by_transformers(model, x, cache, ends, delta=-5)
    expert = expert_like(model)
    hidden = expert(x, expert.read(cache.prefix(ends, (0, 0), (-5, -5)), 1, TOKENS))
    torch.testing.assert_close(hidden, expected, rtol=0, atol=2e-5)


@pytest.mark.parametrize("end", [20, 12])
@torch.inference_mode()
def test_samples_that_share_a_prefix_are_as_if_each_had_its_own(end: int) -> None:
    expert = expert_like(reference())
    cache = random_cache(1, 20, 3 * TOKENS)
    x = torch.randn(3, TOKENS, 24, generator=torch.Generator().manual_seed(2))
    together = expert(x, expert.read(cache.prefix([end], [0], [4]), 3, TOKENS))
    alone = [expert(x[i : i + 1], expert.read(cache.prefix([end], [0], [4]), 1, TOKENS)) for i in range(3)]
    torch.testing.assert_close(together, torch.cat(alone), rtol=0, atol=1e-5)


@torch.inference_mode()
def test_samples_of_several_prefixes_come_one_prefix_after_the_other() -> None:
    expert = expert_like(reference())
    cache = random_cache(2, 20, 2 * TOKENS)
    x = torch.randn(4, TOKENS, 24, generator=torch.Generator().manual_seed(3))
    both = expert(x, expert.read(cache.prefix([20, 15], [0, 0], [0, 0]), 2, TOKENS))
    for row, end in enumerate((20, 15)):
        own = cache.branch([row], 20, 20 + 2 * TOKENS)
        part = expert(x[2 * row : 2 * row + 2], expert.read(own.prefix([end], [0], [0]), 2, TOKENS))
        torch.testing.assert_close(both[2 * row : 2 * row + 2], part, rtol=0, atol=1e-5)


@torch.inference_mode()
def test_steps_read_the_prefix_in_place_and_leave_it_as_it_is() -> None:
    expert = expert_like(reference())
    cache = random_cache(1, 20, TOKENS)
    before = [part.clone() for layer in range(len(cache)) for part in cache.written(layer)]
    prefix = cache.prefix([20], [0], [0])
    assert prefix.keys[0].data_ptr() == cache.written(0)[0].data_ptr()
    context = expert.read(prefix, 1, TOKENS)
    first = expert(torch.ones(1, TOKENS, 24), context)
    expert(torch.zeros(1, TOKENS, 24), context)
    assert torch.equal(expert(torch.ones(1, TOKENS, 24), context), first)
    assert all(
        torch.equal(part, old)
        for part, old in zip([p for layer in range(len(cache)) for p in cache.written(layer)], before, strict=True)
    )


@torch.inference_mode()
def test_padding_is_not_read() -> None:
    expert = expert_like(reference())
    cache = random_cache(1, 20, TOKENS)
    x = torch.randn(1, TOKENS, 24, generator=torch.Generator().manual_seed(4))
    padded = expert(x, expert.read(cache.prefix([20], [5], [0]), 1, TOKENS))
    for layer in range(len(cache)):
        for part in cache.written(layer):
            part[:, :, :5] = 1e4
    again = expert(x, expert.read(cache.prefix([20], [5], [0]), 1, TOKENS))
    assert torch.equal(padded, again)
    assert not torch.allclose(padded, expert(x, expert.read(cache.prefix([20], [0], [0]), 1, TOKENS)))


@torch.inference_mode()
def test_every_action_token_sees_every_other() -> None:
    expert = expert_like(reference())
    context = expert.read(random_cache(1, 20, TOKENS).prefix([20], [0], [0]), 1, TOKENS)
    x = torch.randn(1, TOKENS, 24, generator=torch.Generator().manual_seed(5))
    changed = x.clone()
    changed[:, -1] += 1
    assert (expert(x, context)[:, 0] - expert(changed, context)[:, 0]).abs().max() > 1e-4


def test_too_little_room_is_named() -> None:
    expert = Expert(GEOMETRY)
    prefix: Prefix = random_cache(1, 20, TOKENS).prefix([20], [0], [0])
    with pytest.raises(ConfigurationError, match="room for 6 action tokens; 12 are needed"):
        expert.read(prefix, 2, TOKENS)
