"""Checks prompts.json: every prompt's text and token ids, special tokens, and plain strings."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from alpamayo_ros.model.images import ImageConfig, token_count
from alpamayo_ros.model.prompt import build_driving_prompt, build_question_prompt, driving_text, question_text
from alpamayo_ros.model.vocabulary import Vocabulary, VocabularyConfig
from alpamayo_ros.tools.parity.case import Case, CaseResult, Checker, Machine, Status, equal, same_text

MODEL_TYPES = {"1_5": "alpamayo1_5", "r1": "alpamayo_r1"}

VocabularyOf = Callable[[str], Vocabulary]


def _cases(path: Path, _machine: Machine) -> Iterator[Case]:
    content = json.loads(path.read_text())

    @cache
    def vocabulary_of(variant: str) -> Vocabulary:
        return _vocabulary(path.parent / "tokenizer" / "tokenizer.json", content, variant)

    for variant, tokens in content.get("special_tokens", {}).items():
        name = f"{path.stem}/special_tokens_{variant}"
        yield Case(name, partial(_check_tokens, name, vocabulary_of, variant, tokens))
    for group in ("qwen_added_tokens", "i_tokens"):
        if group in content:
            yield Case(
                f"{path.stem}/{group}",
                partial(_check_tokens, f"{path.stem}/{group}", vocabulary_of, "1_5", content[group]),
            )
    if "special_tokens" in content:
        name = f"{path.stem}/config"
        yield Case(name, partial(_check_config, name, vocabulary_of, content))
    for name, case in content.get("cases", {}).items():
        yield Case(f"{path.stem}/{name}", partial(_check_prompt, f"{path.stem}/{name}", vocabulary_of, case))
    for group, variant in (("tokenizer_cases", "1_5"), ("tokenizer_cases_r1", "r1")):
        for index, case in enumerate(content.get(group, ())):
            name = f"{path.stem}/{group}/{index}"
            yield Case(name, partial(_check_string, name, vocabulary_of, variant, case))


def _check_tokens(
    name: str, vocabulary_of: VocabularyOf, variant: str, tokens: Mapping[str, int]
) -> Iterator[CaseResult]:
    vocabulary = vocabulary_of(variant)
    yield equal(name, [vocabulary.id_of(token) for token in tokens], list(tokens.values()))


def _check_config(name: str, vocabulary_of: VocabularyOf, content: Mapping[str, Any]) -> Iterator[CaseResult]:
    vocabulary = vocabulary_of("1_5")
    for key, value in (
        ("vocab_size", vocabulary.tokenizer.get_vocab_size()),
        ("base_tokenizer_length", vocabulary.trajectory_ids.start),
        ("history_bin0_id", vocabulary.history_ids.start),
        ("eos_token_id", vocabulary.turn_end),
        ("pad_token_id", vocabulary.pad),
    ):
        if key in content:
            yield equal(f"{name}/{key}", value, content[key])


def _check_prompt(name: str, vocabulary_of: VocabularyOf, case: Mapping[str, Any]) -> Iterator[CaseResult]:
    vocabulary = vocabulary_of(case["variant"])
    expected = [token_id for token_id, count in case["input_ids_rle"] for _ in range(count)]
    height, width = case["image_hw"]
    pads = token_count(height, width, ImageConfig())
    yield equal(f"{name}/image_pads", pads, case["image_pads_per_image"])
    images = case["n_images"]
    cameras = _camera_of_each_image(case)
    if case["question"] is None:
        history_tokens = expected.count(vocabulary.history_placeholder)
        text = driving_text(images, history_tokens, cameras, case["nav_text"])
        prompt = build_driving_prompt(vocabulary, [pads] * images, history_tokens, cameras, case["nav_text"])
    else:
        text = question_text(images, case["question"], cameras)
        prompt = build_question_prompt(vocabulary, [pads] * images, case["question"], cameras)
    yield same_text(f"{name}/text", text, case["text_one_pad_per_image"])
    yield _same_ids(f"{name}/token_ids", list(prompt.token_ids), expected)


def _check_string(
    name: str, vocabulary_of: VocabularyOf, variant: str, case: Mapping[str, Any]
) -> Iterator[CaseResult]:
    vocabulary = vocabulary_of(variant)
    yield _same_ids(f"{name}/encode", vocabulary.encode(case["text"]), case["ids"])
    if "decoded" in case:
        yield same_text(f"{name}/decode", vocabulary.decode(case["ids"]), case["decoded"])


def _same_ids(name: str, actual: list[int], expected: list[int]) -> CaseResult:
    """The error is how many ids differ."""
    differing = sum(left != right for left, right in zip(actual, expected, strict=False))
    differing += abs(len(actual) - len(expected))
    status = Status.FAIL if differing else Status.PASS
    message = f"{len(actual)} ids, expected are {len(expected)}" if len(actual) != len(expected) else ""
    return CaseResult(name, status, differing, 0.0, message)


def _camera_of_each_image(case: Mapping[str, Any]) -> list[int] | None:
    if case["cameras"] is None:
        return None
    return [camera for camera in case["cameras"] for _ in range(case["frames_per_camera"])]


def _vocabulary(tokenizer: Path, content: Mapping[str, Any], variant: str) -> Vocabulary:
    start = content["traj_token_start_idx"]
    special = min(token_id for token_id in content["special_tokens"][variant].values() if token_id >= start)
    bins = content["history_bin0_id"] - start
    config = VocabularyConfig(
        model_type=MODEL_TYPES[variant],
        vocab_size=content["vocab_size"],
        traj_token_start_idx=start,
        traj_vocab_size=special - start,
        traj_token_ids=content["traj_token_ids"],
        future_bins=bins,
        history_bins=special - start - bins,
    )
    return Vocabulary(Tokenizer.from_file(str(tokenizer)), config)


PROMPTS = Checker("prompts*.json", _cases)
