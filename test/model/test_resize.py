import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from alpamayo_ros.model.resize import resize, resize_in_fixed_point


def noise(height: int, width: int, seed: int = 0) -> torch.Tensor:
    image = np.random.default_rng(seed).integers(0, 256, (1, 3, height, width), dtype=np.uint8)
    return torch.from_numpy(image)


@given(
    height=st.integers(1, 200),
    width=st.integers(1, 200),
    rows=st.integers(16, 200),
    columns=st.integers(16, 200),
    seed=st.integers(0, 10),
)
@settings(max_examples=60)
def test_the_fixed_point_sums_are_torchs_kernel_within_one_level_in_few_places(height, width, rows, columns, seed):
    image = noise(height, width, seed)

    difference = (resize_in_fixed_point(image, rows, columns).int() - resize(image, rows, columns).int()).abs()

    assert difference.max() <= 1
    assert (difference > 0).float().mean() < 0.002


@pytest.mark.parametrize(
    ("size", "new"), [((1080, 1920), (320, 576)), ((376, 1241), (224, 800)), ((75, 131), (64, 128))]
)
def test_for_camera_images_the_fixed_point_sums_are_torchs_kernel_bit_by_bit(size, new):
    assert torch.equal(resize_in_fixed_point(noise(*size), *new), resize(noise(*size), *new))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize(
    ("size", "new"), [((1080, 1920), (320, 576)), ((376, 1241), (224, 800)), ((75, 131), (64, 128))]
)
def test_the_gpu_resizes_as_the_cpu_does(size, new):
    assert torch.equal(resize(noise(*size).cuda(), *new).cpu(), resize(noise(*size), *new))


def test_the_horizontal_pass_comes_first_and_its_result_is_whole_levels():
    image = noise(100, 150)

    in_order = resize(image, 96, 160)

    assert torch.equal(in_order, resize(resize(image, 100, 160), 96, 160))
    assert (in_order.int() - resize(resize(image, 96, 150), 96, 160).int()).abs().max() > 5


@pytest.mark.parametrize("function", [resize, resize_in_fixed_point])
def test_a_flat_image_stays_flat_and_a_fitting_one_untouched(function):
    flat = torch.full((2, 3, 77, 131), 200, dtype=torch.uint8)

    assert function(flat, 64, 96).unique().tolist() == [200]
    assert function(flat, 64, 96).shape == (2, 3, 64, 96)
    assert torch.equal(function(noise(64, 96), 64, 96), noise(64, 96))


@pytest.mark.parametrize("function", [resize, resize_in_fixed_point])
def test_overshoot_at_an_edge_is_clipped(function):
    edge = torch.zeros(1, 3, 8, 8, dtype=torch.uint8)
    edge[..., 4:] = 255

    wide = function(edge, 8, 64)

    assert wide.dtype == torch.uint8
    assert (wide[0, 0, 0, :24] < 5).all()
    assert (wide[0, 0, 0, 40:] > 250).all()
