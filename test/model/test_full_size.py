"""The published model's tensors, name by name: a network that can't take NVIDIA's weights fails here."""

import json
import math
import re
from pathlib import Path
from typing import Any

import pytest
from safetensors import safe_open
from tiny_checkpoint import changed_copy

from alpamayo_ros.model.alpamayo import ACTION_CONSTANTS, FREQUENCIES, AlpamayoNetwork, make_network_on_meta
from alpamayo_ros.model.config import ModelConfig
from alpamayo_ros.model.geometry import QWEN3_VL_8B

GOLDEN = Path(__file__).parents[2].parent / "shared" / "golden"
Shapes = dict[str, tuple[int, ...]]


@pytest.fixture(scope="module")
def network(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> AlpamayoNetwork:
    def change(config: dict[str, Any]) -> None:
        config["expert_cfg"] = {
            "hidden_size": 2048,
            "intermediate_size": 8256,
            "num_attention_heads": 16,
            "head_dim": 128,
        }
        config["action_in_proj_cfg"]["hidden_size"] = 1024
        config["vocab_size"] = 155697

    folder = tmp_path_factory.mktemp("full")
    (folder / "base").mkdir()
    (folder / "base" / "config.json").write_text(json.dumps(QWEN3_VL_8B))
    return make_network_on_meta(ModelConfig.load(changed_copy(tiny, folder / "copy", change), folder / "base"))


def decoder(prefix: str, size: int, inner: int, heads: int) -> Shapes:
    """36 text layers and a norm."""
    layer = {
        "input_layernorm.weight": (size,),
        "post_attention_layernorm.weight": (size,),
        "self_attn.q_proj.weight": (heads * 128, size),
        "self_attn.k_proj.weight": (8 * 128, size),
        "self_attn.v_proj.weight": (8 * 128, size),
        "self_attn.o_proj.weight": (size, heads * 128),
        "self_attn.q_norm.weight": (128,),
        "self_attn.k_norm.weight": (128,),
        "mlp.gate_proj.weight": (inner, size),
        "mlp.up_proj.weight": (inner, size),
        "mlp.down_proj.weight": (size, inner),
    }
    layers = {f"{prefix}.layers.{i}.{name}": shape for i in range(36) for name, shape in layer.items()}
    return {**layers, f"{prefix}.norm.weight": (size,)}


def linear(name: str, out: int, into: int) -> Shapes:
    return {f"{name}.weight": (out, into), f"{name}.bias": (out,)}


def norm(name: str, size: int) -> Shapes:
    return {f"{name}.weight": (size,), f"{name}.bias": (size,)}


def vision() -> Shapes:
    prefix = "vlm.model.visual"
    shapes: Shapes = {
        f"{prefix}.patch_embed.proj.weight": (1152, 3, 2, 16, 16),
        f"{prefix}.patch_embed.proj.bias": (1152,),
        f"{prefix}.pos_embed.weight": (2304, 1152),
    }
    for index in range(27):
        block = f"{prefix}.blocks.{index}"
        shapes |= norm(f"{block}.norm1", 1152) | norm(f"{block}.norm2", 1152)
        shapes |= linear(f"{block}.attn.qkv", 3 * 1152, 1152) | linear(f"{block}.attn.proj", 1152, 1152)
        shapes |= linear(f"{block}.mlp.linear_fc1", 4304, 1152) | linear(f"{block}.mlp.linear_fc2", 1152, 4304)
    merged = 4 * 1152
    for merger, size in (("merger", 1152), *((f"deepstack_merger_list.{i}", merged) for i in range(3))):
        shapes |= norm(f"{prefix}.{merger}.norm", size)
        shapes |= linear(f"{prefix}.{merger}.linear_fc1", merged, merged)
        shapes |= linear(f"{prefix}.{merger}.linear_fc2", 4096, merged)
    return shapes


def projections() -> Shapes:
    trunk = "action_in_proj.encoder.trunk"
    shapes = linear(f"{trunk}.0", 1024, 60) | linear(f"{trunk}.12", 2048, 1024)
    for index in (3, 6, 9):
        shapes |= linear(f"{trunk}.{index}", 1024, 1024)
    for index in (2, 5, 8, 11):
        shapes[f"{trunk}.{index}.weight"] = (1024,)
    return shapes | norm("action_in_proj.norm", 2048) | linear("action_out_proj", 2, 2048)


def test_every_tensor_has_its_name_and_shape(network: AlpamayoNetwork) -> None:
    expected = {
        **vision(),
        "vlm.model.language_model.embed_tokens.weight": (155697, 4096),
        **decoder("vlm.model.language_model", 4096, 12288, 32),
        "vlm.lm_head.weight": (155697, 4096),
        **decoder("expert", 2048, 8256, 16),
        **projections(),
    }
    assert network.shapes() == expected


def test_the_parameters_are_as_many_as_nvidias(network: AlpamayoNetwork) -> None:
    counts: dict[str, int] = {}
    keys: dict[str, int] = {}
    for name, shape in network.shapes().items():
        part = name.split(".")[0]
        counts[part] = counts.get(part, 0) + math.prod(shape)
        keys[part] = keys.get(part, 0) + 1
    assert counts == {
        "vlm": 8_797_933_808,
        "expert": 2_279_238_656,
        "action_in_proj": 5_318_656,
        "action_out_proj": 4_098,
    }
    assert sum(counts.values()) == 11_082_495_218
    assert (keys["vlm"], keys["expert"]) == (750, 397)


@pytest.mark.parametrize("name", ["alpamayo1_5_tiny", "alpamayo_r1_tiny"])
def test_the_names_are_those_that_nvidias_code_writes(network: AlpamayoNetwork, name: str) -> None:
    if not (GOLDEN / name).is_dir():
        pytest.skip(f"no golden data in {GOLDEN}")
    written: set[str] = set()
    for file in (GOLDEN / name).glob("*.safetensors"):
        with safe_open(file, "pt") as weights:
            written |= set(weights.keys())
    extra = {*ACTION_CONSTANTS, *FREQUENCIES} if name == "alpamayo_r1_tiny" else set()
    numbered = re.compile(r"\.(layers|blocks)\.\d+\.")
    assert extra <= written
    assert {numbered.sub(r".\1.N.", key) for key in written - extra} == {
        numbered.sub(r".\1.N.", key) for key in network.shapes()
    }
