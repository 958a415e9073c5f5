"""Where a name leads: a folder, the local cache, or the hub, which is played here."""

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import huggingface_hub
import pytest
from huggingface_hub.errors import GatedRepoError, LocalEntryNotFoundError, RepositoryNotFoundError

from alpamayo_ros.core.types import ConfigurationError
from alpamayo_ros.model.config import ModelConfig
from alpamayo_ros.model.repository import find_folder

NAME = "nvidia/Alpamayo-1.5"
Hub = Callable[..., str]


def has_config(folder: Path) -> bool:
    return (folder / "config.json").is_file()


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Everything that the network would have been asked for; it is not there."""
    asked: list[str] = []

    def unreachable(_self: object, repo_id: str, **_: object) -> None:
        asked.append(repo_id)
        raise huggingface_hub.errors.OfflineModeIsEnabled("no network")

    monkeypatch.setattr(huggingface_hub.HfApi, "repo_info", unreachable)
    return asked


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A snapshot in a Hugging Face cache, as `hf download` leaves it."""
    repository = tmp_path / f"models--{NAME.replace('/', '--')}"
    snapshot = repository / "snapshots" / ("a" * 40)
    snapshot.mkdir(parents=True)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("a" * 40)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    return snapshot


def test_a_folder_stands_for_itself(tmp_path: Path, asked: list[str]) -> None:
    assert find_folder(str(tmp_path), ["*"], has_config) == tmp_path
    assert asked == []


def test_a_complete_snapshot_is_used_without_asking_the_network(cache: Path, asked: list[str]) -> None:
    (cache / "config.json").write_text("{}")
    assert find_folder(NAME, ["*.json"], has_config) == cache
    assert asked == []


def test_an_incomplete_snapshot_is_completed(cache: Path, asked: list[str]) -> None:
    find_folder(NAME, ["*.json"], has_config)
    assert asked == [NAME]


@pytest.mark.parametrize(
    ("shards", "complete"), [(["1.safetensors"], False), (["1.safetensors", "2.safetensors"], True)]
)
def test_a_model_is_complete_with_all_its_shards(
    cache: Path, asked: list[str], shards: list[str], complete: bool
) -> None:
    (cache / "config.json").write_text("{}")
    index = {"weight_map": {"a": "1.safetensors", "b": "2.safetensors"}}
    (cache / "model.safetensors.index.json").write_text(json.dumps(index))
    for shard in shards:
        (cache / shard).write_bytes(b"")
    with pytest.raises(ConfigurationError, match="model_type"):
        ModelConfig.load(NAME)
    assert asked == ([] if complete else [NAME])


def test_without_a_network_and_a_cache_it_says_what_to_do(
    tmp_path: Path, asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(ConfigurationError) as caught:
        find_folder(NAME, ["*"], has_config)
    assert f"there is no folder {NAME}, the local Hugging Face cache doesn't have all of it" in str(caught.value)
    assert f"`hf download {NAME}`" in str(caught.value)


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (GatedRepoError, f"{NAME} on Hugging Face is gated: accept its licence on https://huggingface.co/{NAME}"),
        (RepositoryNotFoundError, f"there is no folder {NAME}, and no such repository on Hugging Face"),
    ],
)
def test_what_the_hub_refuses_is_told_apart(
    monkeypatch: pytest.MonkeyPatch, error: type[Exception], message: str
) -> None:
    def refuse(*_: object, local_files_only: bool = False, **__: object) -> str:
        if local_files_only:
            raise LocalEntryNotFoundError("not there")
        raise error("refused", response=SimpleNamespace(headers={}, request=None, status_code=401))

    monkeypatch.setattr(huggingface_hub, "snapshot_download", refuse)
    with pytest.raises(ConfigurationError) as caught:
        find_folder(NAME, ["*"], has_config)
    assert message in str(caught.value)
    assert "`hf auth login`" in str(caught.value)


def test_what_is_neither_a_folder_nor_a_name_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="no/such/folder is no folder; it has to be one, or a Hugging Face"):
        find_folder("no/such/folder", ["*"], has_config)
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(ConfigurationError, match=r"config\.json is a file; give the folder that it lies in"):
        find_folder(str(tmp_path / "config.json"), ["*"], has_config)


def test_what_comes_with_the_package_has_a_short_name(
    tmp_path: Path, asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mini").mkdir()
    (tmp_path / "mini" / "config.json").write_text("{}")
    monkeypatch.setattr("alpamayo_ros.model.repository.SHIPPED", tmp_path)
    assert find_folder("mini", ["*"], has_config) == tmp_path / "mini"
    with pytest.raises(ConfigurationError, match=r"maxi is no folder; .* or what comes with the package: mini"):
        find_folder("maxi", ["*"], has_config)
    assert asked == []
