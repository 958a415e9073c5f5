from pathlib import Path

import pytest
import torch
from tiny_checkpoint import picture
from torch import Tensor

from alpamayo_ros.model.alpamayo import AlpamayoModel
from alpamayo_ros.model.backbone import ImageFeatures, batch_prompts
from alpamayo_ros.model.config import ModelConfig
from alpamayo_ros.model.images import preprocess
from alpamayo_ros.model.kv_cache import KVCache
from alpamayo_ros.model.prompt import Prompt, build_driving_prompt

CPU = torch.device("cpu")
Read = tuple[Tensor, KVCache]


@pytest.fixture(scope="module")
def model(tiny: Path) -> AlpamayoModel:
    return AlpamayoModel.load(ModelConfig.load(tiny), CPU, torch.float32)


@pytest.fixture(scope="module")
def features(model: AlpamayoModel) -> list[ImageFeatures]:
    with torch.inference_mode():
        pictures = [picture(i) for i in range(3)] + [picture(9, 160, 96)]  # of two sizes
        return model.backbone.encode(preprocess(pictures, model.config.images))


def prompt_for(model: AlpamayoModel, features: list[ImageFeatures], navigation: str | None = None) -> Prompt:
    counts = [len(image.embeddings) for image in features]
    prompt = build_driving_prompt(model.vocabulary, counts, model.config.history_tokens, [1] * len(counts), navigation)
    return prompt.with_history([model.vocabulary.history_ids.start + i for i in range(48)])


def read(model: AlpamayoModel, prompt: Prompt, features: list[ImageFeatures], logits: int = 1) -> Read:
    batch = batch_prompts([prompt], [features], model.vocabulary.pad, CPU)
    cache = KVCache(model.backbone.layers, batch.length + 20)
    return model.backbone.read(batch, cache, logits), cache


@torch.inference_mode()
def test_images_encoded_one_by_one_are_those_encoded_together(model: AlpamayoModel, features: list) -> None:
    for index, image in enumerate([picture(0), picture(1), picture(2), picture(9, 160, 96)]):
        alone = model.backbone.encode(preprocess([image], model.config.images))[0]
        torch.testing.assert_close(alone.embeddings, features[index].embeddings, rtol=0, atol=1e-4)
        torch.testing.assert_close(alone.deepstack, features[index].deepstack, rtol=0, atol=1e-4)
        assert (alone.rows, alone.columns) == (features[index].rows, features[index].columns)
        assert len(alone.embeddings) == alone.rows * alone.columns


@torch.inference_mode()
def test_reading_is_what_transformers_does_with_the_whole(model: AlpamayoModel, features: list) -> None:
    prompt = prompt_for(model, features)
    logits, cache = read(model, prompt, features, logits=5)
    patches = preprocess([picture(0), picture(1), picture(2), picture(9, 160, 96)], model.config.images)
    ids = torch.tensor([prompt.token_ids])
    whole = model.network.vlm(
        input_ids=ids,
        attention_mask=torch.ones_like(ids),
        pixel_values=patches.pixel_values,
        image_grid_thw=patches.grid_thw,
        mm_token_type_ids=(ids == model.vocabulary.image_pad).int(),
        use_cache=True,
    )
    torch.testing.assert_close(logits, whole.logits[:, -5:], rtol=0, atol=1e-3)
    for layer in range(len(cache)):
        torch.testing.assert_close(cache.written(layer)[0], whole.past_key_values.layers[layer].keys, rtol=0, atol=1e-4)


@torch.inference_mode()
def test_reading_on_is_reading_at_once(model: AlpamayoModel, features: list) -> None:
    prompt = prompt_for(model, features)
    more = [40, 41, 42, 43]
    whole = Prompt((*prompt.token_ids, *more), prompt.images, prompt.history, prompt.route)
    expected, cache_at_once = read(model, whole, features, logits=4)
    batch = batch_prompts([prompt], [features], model.vocabulary.pad, CPU)
    cache = KVCache(model.backbone.layers, batch.length + 20)
    model.backbone.read(batch, cache)
    steps = [model.backbone.extend(batch, cache, torch.tensor([[token]])) for token in more[:2]]
    steps.append(model.backbone.extend(batch, cache, torch.tensor([more[2:]]), logits=2))
    torch.testing.assert_close(torch.cat(steps, 1), expected, rtol=0, atol=1e-3)
    torch.testing.assert_close(cache.written(2)[0], cache_at_once.written(2)[0], rtol=0, atol=1e-4)


@torch.inference_mode()
def test_a_padded_prompt_is_read_as_if_it_stood_alone(model: AlpamayoModel, features: list) -> None:
    short, long = prompt_for(model, features), prompt_for(model, features, "Turn left in 30m")
    batch = batch_prompts([short, long], [features, features], model.vocabulary.pad, CPU)
    padding = len(long) - len(short)
    assert batch.padding == (padding, 0)
    cache = KVCache(model.backbone.layers, batch.length + 20)
    logits = model.backbone.read(batch, cache)
    after = model.backbone.extend(batch, cache, torch.tensor([[40], [41]]))
    for row, (prompt, token) in enumerate(((short, 40), (long, 41))):
        single = batch_prompts([prompt], [features], model.vocabulary.pad, CPU)
        own = KVCache(model.backbone.layers, single.length + 20)
        torch.testing.assert_close(logits[row : row + 1], model.backbone.read(single, own), rtol=0, atol=1e-3)
        expected = model.backbone.extend(single, own, torch.tensor([[token]]))
        torch.testing.assert_close(after[row : row + 1], expected, rtol=0, atol=1e-3)
        keys = cache.written(3)[0][row, :, batch.padding[row] :]
        torch.testing.assert_close(keys, own.written(3)[0][0], rtol=0, atol=1e-4)


@torch.inference_mode()
def test_a_branch_is_a_cache_of_its_own(model: AlpamayoModel, features: list) -> None:
    prompt = prompt_for(model, features)
    batch = batch_prompts([prompt], [features], model.vocabulary.pad, CPU)
    trunk = KVCache(model.backbone.layers, batch.length)
    model.backbone.read(batch, trunk)
    branch = trunk.branch([0, 0], 30, 40)
    assert (trunk.length, branch.length) == (len(prompt), 30)
    assert branch.written(0)[0].shape[0] == 2
    assert torch.equal(branch.written(1)[1][1], trunk.written(1)[1][0, :, :30])
    branch.written(0)[0].zero_()
    assert trunk.written(0)[0].abs().sum() > 0


@torch.inference_mode()
def test_truncated_tokens_are_forgotten(model: AlpamayoModel, features: list) -> None:
    prompt = prompt_for(model, features)
    batch = batch_prompts([prompt], [features], model.vocabulary.pad, CPU)
    cache = KVCache(model.backbone.layers, batch.length + 20)
    model.backbone.read(batch, cache)
    expected = model.backbone.extend(batch, cache, torch.tensor([[40]]))
    cache.truncate(len(prompt))
    model.backbone.extend(batch, cache, torch.tensor([[50, 51, 52]]))
    cache.truncate(len(prompt))
    assert cache.length == len(prompt)
    torch.testing.assert_close(model.backbone.extend(batch, cache, torch.tensor([[40]])), expected, rtol=0, atol=1e-5)
