import itertools

import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers.models.qwen3_vl.configuration_qwen3_vl import Qwen3VLConfig
from transformers.models.qwen3_vl.modeling_qwen3_vl import Qwen3VLModel

from alpamayo_ros.model.prompt import Prompt
from alpamayo_ros.model.rope_positions import rope_positions

TEXT, IMAGE = 5, 9  # token ids


def prompt_of(pieces: list[tuple[int, tuple[int, int]]], tail: int) -> Prompt:
    """Pieces of (text tokens, image size) and text after them."""
    ids: list[int] = []
    images = []
    for text, (rows, columns) in pieces:
        ids += [TEXT] * text
        images.append(range(len(ids), len(ids) + rows * columns))
        ids += [IMAGE] * (rows * columns)
    return Prompt((*ids, *[TEXT] * tail), tuple(images), range(0), range(0))


def positions_of_transformers(prompt: Prompt, sizes: list[tuple[int, int]]) -> tuple[torch.Tensor, int]:
    config = Qwen3VLConfig(
        text_config={"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1, "num_key_value_heads": 1,
                     "head_dim": 8, "intermediate_size": 8, "vocab_size": 10,
                     "rope_scaling": {"rope_type": "default", "mrope_section": [2, 1, 1], "mrope_interleaved": True}},
        vision_config={"hidden_size": 8, "depth": 1, "num_heads": 1, "intermediate_size": 8, "out_hidden_size": 8,
                       "deepstack_visual_indexes": [0]},
        image_token_id=IMAGE,
    )  # fmt: skip
    with torch.device("meta"):
        model = Qwen3VLModel(config)
    ids = torch.tensor([prompt.token_ids])
    positions, deltas = model.get_rope_index(
        ids,
        mm_token_type_ids=(ids == IMAGE).int(),
        image_grid_thw=torch.tensor([[1, 2 * rows, 2 * columns] for rows, columns in sizes]),
    )
    return positions[:, 0], int(deltas[0, 0])


@given(
    st.lists(st.tuples(st.integers(1, 9), st.tuples(st.integers(1, 6), st.integers(1, 6))), min_size=1, max_size=5),
    st.integers(1, 9),
)
def test_positions_are_those_of_transformers(pieces: list[tuple[int, tuple[int, int]]], tail: int) -> None:
    prompt = prompt_of(pieces, tail)
    sizes = [size for _, size in pieces]
    ours = rope_positions(prompt, sizes)
    positions, delta = positions_of_transformers(prompt, sizes)
    assert torch.equal(ours.prompt, positions)
    assert ours.delta == delta


def test_sixteen_images_take_2592_positions_less_than_tokens() -> None:
    prompt = prompt_of([(3, (10, 18))] * 16, 74)
    assert rope_positions(prompt, [(10, 18)] * 16).delta == -2592


def test_text_alone_counts_up() -> None:
    positions = rope_positions(prompt_of([], 7), [])
    assert positions.prompt.tolist() == [list(range(7))] * 3
    assert positions.delta == 0


def test_the_count_goes_on_behind_the_larger_side() -> None:
    wide, high = (rope_positions(prompt_of([(2, size)], 1), [size]) for size in ((2, 5), (5, 2)))
    for each, axis in itertools.product((wide, high), range(3)):
        assert each.prompt[axis, -1] == 7
