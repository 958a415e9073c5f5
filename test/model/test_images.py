import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from alpamayo_ros.core.types import BadImageError, ConfigurationError
from alpamayo_ros.model.images import (
    ImageConfig,
    ImageSizeError,
    patchify,
    preprocess,
    target_size,
    token_count,
)

SMALL = ImageConfig(min_pixels=1024, max_pixels=16384)
CAMERAS = [(1080, 1920), (376, 1241), (75, 131), (1, 33), (600, 4), (480, 640)]


@pytest.fixture(scope="module")
def qwen():
    """Transformers' own image processor, which not every version has without torchvision."""
    return pytest.importorskip("transformers.models.qwen2_vl.image_processing_pil_qwen2_vl")


def noise(height: int, width: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)


@pytest.mark.parametrize(
    ("size", "resized", "tokens"),
    [
        ((1080, 1920), (320, 576), 180),
        ((900, 1600), (320, 576), 180),
        ((720, 1280), (320, 576), 180),
        ((640, 960), (352, 512), 176),
        ((1536, 2048), (384, 512), 192),
        ((256, 704), (256, 704), 176),
        ((1208, 1920), (320, 544), 170),
        ((376, 1241), (224, 800), 175),
    ],
)
def test_common_camera_sizes_become_nvidias(size, resized, tokens):
    assert target_size(*size, ImageConfig()) == resized
    assert token_count(*size, ImageConfig()) == tokens


@given(height=st.integers(1, 5000), width=st.integers(1, 5000))
def test_any_size_becomes_whole_blocks_or_is_refused_as_too_long(height, width):
    if max(height, width) > 200 * min(height, width):
        with pytest.raises(ImageSizeError, match=f"{width}x{height} pixels is too long"):
            target_size(height, width, ImageConfig())
        return

    rows, columns = target_size(height, width, ImageConfig())

    assert rows % 32 == columns % 32 == 0
    assert min(rows, columns) >= 32


@given(shorter=st.integers(1, 3000), ratio=st.floats(1, 6), upright=st.booleans())
@example(shorter=599, ratio=32.05 / 5.99, upright=False)
def test_an_image_has_no_fewer_and_no_more_tokens_than_the_smallest_and_the_largest(shorter, ratio, upright):
    longer = int(shorter * ratio)
    tokens = token_count(*((longer, shorter) if upright else (shorter, longer)), ImageConfig())
    assert (ImageConfig().min_tokens, ImageConfig().max_tokens) == (160, 192)
    assert 160 <= tokens <= 192


@given(height=st.integers(100, 4000), ratio=st.floats(0.4, 2.5))
def test_the_area_of_a_camera_image_is_within_the_limits_and_its_shape_is_kept(height, ratio):
    width = round(height * ratio)
    config = ImageConfig()

    rows, columns = target_size(height, width, config)

    assert 0.8 * config.min_pixels <= rows * columns <= config.max_pixels
    assert columns / rows == pytest.approx(width / height, rel=0.15)


@given(
    height=st.integers(1, 5000),
    width=st.integers(1, 5000),
    limits=st.tuples(st.integers(1, 10**6), st.integers(1, 10**6)).map(sorted),
    factor=st.sampled_from([28, 32]),
)
@example(height=320, width=576, limits=[163840, 320 * 576], factor=32)  # of exactly the allowed area
@example(height=330, width=570, limits=[163840, 320 * 576], factor=32)  # that before it is rounded
@example(height=320, width=576, limits=[320 * 576, 10**6], factor=32)
@example(height=16, width=3200, limits=[1, 10**6], factor=32)  # of exactly the allowed aspect ratio
@example(height=48, width=80, limits=[1, 10**6], factor=32)  # halves are rounded to even
@example(height=10, width=1900, limits=[1, 2048], factor=32)  # at least one block, whatever the limit is
@settings(max_examples=500)
def test_the_size_is_that_of_transformers(qwen, height, width, limits, factor):
    config = ImageConfig(*limits, patch_size=factor // 2)
    try:
        expected = qwen.smart_resize(height, width, factor, *limits)
    except ValueError:
        with pytest.raises(ImageSizeError):
            target_size(height, width, config)
    else:
        assert target_size(height, width, config) == expected


def test_the_vision_tower_is_given_what_transformers_gives_it(qwen):
    config = ImageConfig(min_pixels=1024, max_pixels=16384, image_mean=(0.4, 0.5, 0.6), image_std=(0.2, 0.25, 0.3))
    processor = qwen.Qwen2VLImageProcessorPil(
        patch_size=16,
        merge_size=2,
        temporal_patch_size=2,
        image_mean=list(config.image_mean),
        image_std=list(config.image_std),
        size={"shortest_edge": 1024, "longest_edge": 16384},
    )
    images = [noise(64, 96), noise(128, 96, seed=1)]  # they need no resize, which is Pillow's there

    ours, theirs = preprocess(images, config), processor(images, return_tensors="pt")

    assert torch.equal(ours.grid_thw, theirs["image_grid_thw"])
    torch.testing.assert_close(ours.pixel_values, theirs["pixel_values"], rtol=0, atol=1e-5)


@pytest.mark.parametrize("size", [*CAMERAS, (7, 1400), (1400, 7), (33, 32)])
def test_images_of_any_size_and_aspect_are_taken(size):
    patches = preprocess([noise(*size)], ImageConfig())

    rows, columns = target_size(*size, ImageConfig())
    assert patches.grid_thw.tolist() == [[1, rows // 16, columns // 16]]
    assert patches.pixel_values.shape == (rows * columns // 256, 1536)
    assert patches.pixel_values.abs().max() <= 1
    assert patches.token_counts == (token_count(*size, ImageConfig()),)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("size", CAMERAS)
def test_a_gpu_prepares_images_as_the_cpu_does_within_one_level(size):
    gpu, cpu = (preprocess([noise(*size)], ImageConfig(), device) for device in ("cuda", "cpu"))

    assert gpu.pixel_values.is_cuda
    assert torch.equal(gpu.grid_thw.cpu(), cpu.grid_thw)
    difference = (gpu.pixel_values.cpu() - cpu.pixel_values).abs() * 127.5  # levels
    assert difference.max() < 1.01
    assert (difference > 0.01).float().mean() < 0.002


def test_an_empty_image_is_refused():
    with pytest.raises(ImageSizeError, match="0x4 pixels is empty"):
        target_size(4, 0, ImageConfig())


def test_patches_lie_where_the_vision_tower_expects_them():
    image = torch.from_numpy(noise(64, 96)).permute(2, 0, 1)[None]

    patches = patchify(image, SMALL)[0]

    assert patches.shape == (4 * 6, 3 * 2 * 16 * 16)
    # Patch 14 is in the fourth block of 2 x 2, the first of the second row: its third patch, at row 3, column 0.
    patch = patches[14].view(3, 2, 16, 16)
    expected = (image[0, :, 48:64, 0:16].float() - 127.5) / 127.5
    torch.testing.assert_close(patch[:, 0], expected)
    torch.testing.assert_close(patch[:, 1], expected)


def test_images_of_several_sizes_follow_each_other():
    first, second = noise(64, 96), noise(128, 64, seed=1)

    together = preprocess([first, second], SMALL)

    assert together.grid_thw.tolist() == [[1, 4, 6], [1, 8, 4]]
    assert together.token_counts == (6, 8)
    alone = preprocess([second], SMALL)
    assert torch.equal(together.pixel_values[24:], alone.pixel_values)


def test_arrays_tensors_and_flipped_views_are_the_same_images():
    image = noise(64, 96)
    flipped = np.ascontiguousarray(image[:, ::-1])[:, ::-1]
    frozen = image.copy()
    frozen.flags.writeable = False

    expected = preprocess([torch.from_numpy(image)], SMALL).pixel_values
    for same in (image, flipped, frozen):
        assert torch.equal(preprocess([same], SMALL).pixel_values, expected)


@pytest.mark.parametrize(
    ("image", "message"),
    [
        (np.zeros((64, 96, 3), np.float32), "type float32; it has to be uint8"),
        (np.zeros((64, 96), np.uint8), r"shape \(64, 96\)"),
        (np.zeros((3, 64, 96), np.uint8), r"it has to be uint8 \[H, W, 3\]"),
        (torch.zeros(64, 96, 3), "type torch.float32"),
    ],
)
def test_other_types_and_shapes_are_refused(image, message):
    with pytest.raises(BadImageError, match=message):
        preprocess([image], SMALL)


def test_no_images_are_refused():
    with pytest.raises(BadImageError, match="no images"):
        preprocess([], SMALL)


def test_the_pixel_limits_are_the_models_and_the_rest_is_the_processors():
    config = ImageConfig.from_json(
        {"min_pixels": 1024, "max_pixels": 4096},
        {"patch_size": 14, "image_mean": [0.4, 0.5, 0.6], "size": {"shortest_edge": 1, "longest_edge": 2}},
    )

    assert (config.min_pixels, config.max_pixels, config.factor) == (1024, 4096, 28)
    assert config.image_mean == (0.4, 0.5, 0.6)


def test_limits_that_cannot_be_are_refused():
    with pytest.raises(ConfigurationError, match="min_pixels is 10 and max_pixels is 5"):
        ImageConfig.from_json({"min_pixels": 10, "max_pixels": 5})
