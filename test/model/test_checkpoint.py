import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from tiny_checkpoint import write_tiny_checkpoint

from alpamayo_ros.core.types import ConfigurationError
from alpamayo_ros.model.alpamayo import ACTION_CONSTANTS, FREQUENCIES, AlpamayoModel
from alpamayo_ros.model.checkpoint import INDEX_FILE, SINGLE_FILE, Checkpoint
from alpamayo_ros.model.config import ModelConfig

CPU = torch.device("cpu")
NORM = "expert.norm.weight"
HEAD = "vlm.lm_head.weight"


@pytest.fixture
def copy(tiny: Path, tmp_path: Path) -> Path:
    return shutil.copytree(tiny, tmp_path / "copy")


def tensors_of(folder: Path) -> dict[str, torch.Tensor]:
    return {name: tensor for file in folder.glob("*.safetensors") for name, tensor in load_file(file).items()}


def write_single(folder: Path, tensors: dict[str, torch.Tensor]) -> None:
    """Replace the shards by one file."""
    for file in folder.glob("*.safetensors"):
        file.unlink()
    (folder / INDEX_FILE).unlink(missing_ok=True)
    save_file(tensors, folder / SINGLE_FILE)


def load(folder: Path, dtype: torch.dtype = torch.float32, bf16_constants: bool = True) -> AlpamayoModel:
    return AlpamayoModel.load(ModelConfig.load(folder), CPU, dtype, bf16_constants)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_every_parameter_has_the_value_of_its_file(tiny: Path, dtype: torch.dtype) -> None:
    expected = tensors_of(tiny)
    assert len(list(tiny.glob("*.safetensors"))) > 1
    parameters = dict(load(tiny, dtype).network.named_parameters())
    assert parameters.keys() == expected.keys()
    for name, parameter in parameters.items():
        assert parameter.dtype == dtype
        assert not parameter.requires_grad
        assert torch.equal(parameter, expected[name].to(dtype)), name


def test_one_file_is_as_good_as_shards(tiny: Path, copy: Path) -> None:
    write_single(copy, tensors_of(copy))
    one, several = load(copy).network.state_dict(), load(tiny).network.state_dict()
    assert all(torch.equal(one[name], several[name]) for name in several)


def test_the_model_does_not_hang_on_its_files(copy: Path) -> None:
    model = load(copy, torch.bfloat16)
    before = {name: parameter.clone() for name, parameter in model.network.named_parameters()}
    for file in copy.glob("*.safetensors"):
        with file.open("r+b") as stream:
            stream.seek(file.stat().st_size // 2)
            stream.write(b"\xff" * 1000)
    assert all(torch.equal(parameter, before[name]) for name, parameter in model.network.named_parameters())


def test_rotary_frequencies_are_those_of_transformers(tiny: Path) -> None:
    from alpamayo_ros.model.backbone import make_vlm

    expected = dict(make_vlm(ModelConfig.load(tiny).backbone).named_buffers())
    buffers = dict(load(tiny, torch.bfloat16).network.vlm.named_buffers())
    assert buffers.keys() == expected.keys()
    assert expected
    for name, buffer in buffers.items():
        assert buffer.dtype == torch.float32
        torch.testing.assert_close(buffer, expected[name], rtol=1e-6, atol=0)


def test_all_that_is_wrong_is_named_at_once(copy: Path) -> None:
    tensors = tensors_of(copy)
    del tensors[NORM]
    del tensors["action_out_proj.bias"]
    tensors[HEAD] = tensors[HEAD][:100].clone()
    tensors["action_out_proj.weight"] = tensors["action_out_proj.weight"].to(torch.int8)
    tensors["expert.embed_tokens.weight"] = torch.zeros(2)
    write_single(copy, tensors)
    with pytest.raises(ConfigurationError) as caught:
        load(copy)
    message = str(caught.value)
    assert f"{NORM} is missing; its shape is [96]" in message
    assert "action_out_proj.bias is missing" in message
    assert f"{HEAD} in model.safetensors has the shape [100, 128]; it has to be [" in message
    assert "action_out_proj.weight in model.safetensors has the type I8" in message
    assert "expert.embed_tokens.weight in model.safetensors is unexpected" in message
    assert str(copy) in message
    assert "vlm_base/config.json" in message  # where the shapes come from


def test_a_truncated_file_is_named_before_anything_is_read(copy: Path) -> None:
    file = sorted(copy.glob("*.safetensors"))[0]
    size = file.stat().st_size
    with file.open("r+b") as stream:
        stream.truncate(size - 7)
    with pytest.raises(ConfigurationError, match=rf"{file.name} has {size - 7} bytes; by its header .* {size}"):
        Checkpoint.open(copy)


@pytest.mark.parametrize("content", [b"", b"abc", b"\xff" * 100, b"\x02\x00\x00\x00\x00\x00\x00\x00[]"])
def test_a_file_that_is_no_safetensors_file_is_named(copy: Path, content: bytes) -> None:
    file = sorted(copy.glob("*.safetensors"))[0]
    file.write_bytes(content)
    with pytest.raises(ConfigurationError, match=rf"{file.name} is no safetensors file, or is cut short"):
        Checkpoint.open(copy)


def test_a_missing_shard_and_missing_weights_are_named(copy: Path) -> None:
    first, *others = sorted(copy.glob("*.safetensors"))
    first.unlink()
    with pytest.raises(ConfigurationError, match=rf"lists {first.name}, which the folder doesn't have"):
        Checkpoint.open(copy)
    for file in others:
        file.unlink()
    (copy / INDEX_FILE).unlink()
    with pytest.raises(ConfigurationError, match="holds no weights"):
        Checkpoint.open(copy)


def test_a_git_lfs_pointer_is_named(copy: Path) -> None:
    file = sorted(copy.glob("*.safetensors"))[0]
    file.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 4928204944\n")
    with pytest.raises(ConfigurationError, match=rf"{file.name} is a pointer of Git LFS .* `git lfs pull`"):
        Checkpoint.open(copy)


def test_a_header_that_contradicts_itself_is_named(copy: Path) -> None:
    file = sorted(copy.glob("*.safetensors"))[0]
    content = file.read_bytes()
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    name = next(name for name in header if name != "__metadata__")
    header[name]["data_offsets"][0] += 2
    text = json.dumps(header).encode()
    file.write_bytes(len(text).to_bytes(8, "little") + text + content[8 + length :])
    with pytest.raises(ConfigurationError, match=rf"{file.name} has a header that contradicts itself"):
        Checkpoint.open(copy)


def test_a_tensor_in_two_files_is_named(copy: Path) -> None:
    first, second = sorted(copy.glob("*.safetensors"))[:2]
    tensors = load_file(second)
    name = next(iter(load_file(first)))
    save_file({**tensors, name: torch.zeros(1)}, second)
    with pytest.raises(ConfigurationError, match=rf"{name} is in .*{first.name} as well as in .*{second.name}"):
        Checkpoint.open(copy)


def test_an_index_cannot_point_out_of_its_folder(copy: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside.safetensors"
    save_file({"a": torch.zeros(1)}, outside)
    (copy / INDEX_FILE).write_text(json.dumps({"weight_map": {"a": "../outside.safetensors"}}))
    with pytest.raises(ConfigurationError, match=r"\.\./outside\.safetensors"):
        Checkpoint.open(copy)


def test_the_hash_tells_checkpoints_apart(tiny: Path, copy: Path, tmp_path: Path) -> None:
    assert Checkpoint.open(tiny).hash == Checkpoint.open(copy).hash
    other = write_tiny_checkpoint(tmp_path / "other", seed=1)
    assert Checkpoint.open(other).hash != Checkpoint.open(tiny).hash
    tensors = tensors_of(copy)
    tensors["more"] = torch.zeros(1)
    write_single(copy, tensors)
    assert Checkpoint.open(copy).hash != Checkpoint.open(tiny).hash


def with_stored_constants(folder: Path, frequencies: torch.Tensor) -> Path:
    """Add the seven buffers that Alpamayo R1 stores."""
    tensors = tensors_of(folder)
    for name, value in zip(ACTION_CONSTANTS, (0.5, 0.75, 0.25, 0.125), strict=True):
        tensors[name] = torch.tensor(value, dtype=torch.bfloat16)
    for name in FREQUENCIES:
        tensors[name] = frequencies[None].clone()
    write_single(folder, tensors)
    return folder


@pytest.mark.parametrize("bf16_constants", [True, False])
def test_stored_constants_count_whatever_is_asked(tiny: Path, copy: Path, bf16_constants: bool) -> None:
    rounded = load(tiny).network.action_in_proj.frequencies
    exact = load(tiny, bf16_constants=False).network.action_in_proj.frequencies
    assert not torch.equal(rounded, exact)
    for frequencies in (rounded.bfloat16(), exact):
        model = load(with_stored_constants(copy, frequencies), bf16_constants=bf16_constants)
        space = model.action_space.config
        constants = (space.accel_mean, space.accel_std, space.curvature_mean, space.curvature_std)
        assert constants == (0.5, 0.75, 0.25, 0.125)
        torch.testing.assert_close(model.network.action_in_proj.frequencies, frequencies.float(), rtol=1e-6, atol=0)


def test_stored_frequencies_that_contradict_the_config_are_named(tiny: Path, copy: Path) -> None:
    frequencies = load(tiny).network.action_in_proj.frequencies * 2
    with pytest.raises(ConfigurationError, match=r"action_in_proj\.sinus\.0\.freqs is \[2\.0"):
        load(with_stored_constants(copy, frequencies))
    tensors = tensors_of(copy)
    tensors[FREQUENCIES[1]] = tensors[FREQUENCIES[1]] + 1
    write_single(copy, tensors)
    with pytest.raises(ConfigurationError, match="have to be equal"):
        load(copy)


def test_a_stored_constant_that_is_no_number_is_named(tiny: Path, copy: Path) -> None:
    frequencies = load(tiny).network.action_in_proj.frequencies
    tensors = tensors_of(with_stored_constants(copy, frequencies))
    write_single(copy, {**tensors, ACTION_CONSTANTS[1]: torch.ones(3)})
    with pytest.raises(ConfigurationError, match=r"copy: action_space\.accel_std has the shape \[3\]"):
        load(copy)


def test_tensors_are_streamed_file_by_file(tiny: Path) -> None:
    checkpoint = Checkpoint.open(tiny)
    files = [checkpoint.tensors[name].file for name, _ in checkpoint.stream(list(checkpoint.tensors))]
    assert files == sorted(files)
    assert set(files) == set(checkpoint.files)
    with safe_open(checkpoint.files[0], "pt") as weights:
        assert set(weights.keys()) == {name for name, entry in checkpoint.tensors.items() if entry.file == files[0]}
