"""When the writing ends, and what is forced then: by logits made up here."""

import pytest
import torch

from alpamayo_ros.core.types import SamplingOptions
from alpamayo_ros.engine.reasoning import Answerer, Reasoner, Text
from alpamayo_ros.engine.transformers_engine import TransformersEngine
from alpamayo_ros.model.vocabulary import Vocabulary

WORD, OTHER = 40, 41  # any two letters


@pytest.fixture(scope="module")
def vocabulary(engine: TransformersEngine) -> Vocabulary:
    return engine._model.vocabulary


def logits_for(vocabulary: Vocabulary, *tokens: int) -> torch.Tensor:
    """Logits of one row per token, which all but exclude anything else."""
    logits = torch.zeros(len(tokens), vocabulary.size)
    logits[range(len(tokens)), tokens] = 100
    return logits


def write_all(reasoner: Reasoner, vocabulary: Vocabulary, *steps: tuple[int, ...]) -> list[list[int]]:
    """What is handed to the model, step by step, while the logits favour `steps`."""
    handed = []
    for tokens in steps:
        chosen = reasoner(logits_for(vocabulary, *tokens))
        if chosen is None:
            break
        handed.append(chosen)
    return handed


def test_it_stops_where_the_trajectory_starts(vocabulary: Vocabulary) -> None:
    reasoner = Reasoner(vocabulary, SamplingOptions(), [Text(0)])
    start = vocabulary.future_start
    handed = write_all(reasoner, vocabulary, (WORD,), (vocabulary.reasoning_end,), (start,), (OTHER,))
    assert handed == [[WORD], [vocabulary.reasoning_end], [start]]
    assert reasoner.texts[0].finish_reason == "stop"


def test_the_cap_forces_the_end_and_keeps_the_text(vocabulary: Vocabulary) -> None:
    reasoner = Reasoner(vocabulary, SamplingOptions(max_reasoning_tokens=3), [Text(0)])
    write_all(reasoner, vocabulary, *[(WORD,)] * 9)
    assert reasoner.texts[0].token_ids == [WORD] * 3 + [vocabulary.reasoning_end, vocabulary.future_start]
    assert reasoner.texts[0].finish_reason == "length"


def test_reasoning_that_is_closed_already_is_not_closed_twice(vocabulary: Vocabulary) -> None:
    reasoner = Reasoner(vocabulary, SamplingOptions(max_reasoning_tokens=2), [Text(0)])
    write_all(reasoner, vocabulary, (vocabulary.reasoning_end,), *[(WORD,)] * 9)
    assert reasoner.texts[0].token_ids == [vocabulary.reasoning_end, WORD, vocabulary.future_start]


def test_the_deadline_forces_the_end(vocabulary: Vocabulary) -> None:
    reasoner = Reasoner(vocabulary, SamplingOptions(deadline_ms=0), [Text(0)])
    write_all(reasoner, vocabulary, *[(WORD,)] * 9)
    assert reasoner.texts[0].token_ids == [vocabulary.reasoning_end, vocabulary.future_start]
    assert reasoner.texts[0].finish_reason == "deadline"


def test_a_deadline_in_the_midst_keeps_the_text_so_far(vocabulary: Vocabulary, monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter([10.0, 10.02, 10.04, 10.06, 10.08, 10.1])  # s
    monkeypatch.setattr("alpamayo_ros.engine.reasoning.time.monotonic", lambda: next(now))
    reasoner = Reasoner(vocabulary, SamplingOptions(deadline_ms=50), [Text(0)])
    write_all(reasoner, vocabulary, *[(WORD,)] * 9)
    # the time runs from the first token: the fourth would be 60 ms later
    assert reasoner.texts[0].token_ids == [WORD] * 3 + [vocabulary.reasoning_end, vocabulary.future_start]
    assert reasoner.texts[0].finish_reason == "deadline"


def test_every_row_has_its_own_reason(vocabulary: Vocabulary) -> None:
    reasoner = Reasoner(vocabulary, SamplingOptions(max_reasoning_tokens=3), [Text(sample) for sample in range(3)])
    start, turn_end = vocabulary.future_start, vocabulary.turn_end
    write_all(reasoner, vocabulary, (WORD, WORD, WORD), (start, turn_end, WORD), *[(OTHER, OTHER, OTHER)] * 9)
    closing = [vocabulary.reasoning_end, start]
    assert [text.token_ids for text in reasoner.texts] == [
        [WORD, start],
        [WORD, *closing],
        [WORD, WORD, OTHER, *closing],
    ]
    assert [text.finish_reason for text in reasoner.texts] == ["stop", "forced", "length"]


def test_a_trajectory_that_starts_at_the_very_cap_is_no_forced_one(vocabulary: Vocabulary) -> None:
    reasoner = Reasoner(vocabulary, SamplingOptions(max_reasoning_tokens=2), [Text(0)])
    write_all(reasoner, vocabulary, (vocabulary.reasoning_end,), (vocabulary.future_start,), (WORD,))
    assert reasoner.texts[0].token_ids == [vocabulary.reasoning_end, vocabulary.future_start]
    assert reasoner.texts[0].finish_reason == "stop"


def test_a_turn_that_ends_without_a_trajectory_is_forced_to_one(vocabulary: Vocabulary) -> None:
    reasoner = Reasoner(vocabulary, SamplingOptions(), [Text(0)])
    write_all(reasoner, vocabulary, (WORD,), *[(vocabulary.turn_end,)] * 3)
    assert reasoner.texts[0].token_ids == [WORD, vocabulary.reasoning_end, vocabulary.future_start]
    assert reasoner.texts[0].finish_reason == "forced"


def test_trajectory_tokens_are_never_written(vocabulary: Vocabulary) -> None:
    reasoner = Reasoner(vocabulary, SamplingOptions(max_reasoning_tokens=20), [Text(0)])
    logits = logits_for(vocabulary, WORD)
    logits[:, vocabulary.trajectory_ids.start : vocabulary.trajectory_ids.stop] = 1000
    assert reasoner(logits) == [WORD]


def test_a_row_that_ended_is_padded_until_the_last_has(vocabulary: Vocabulary) -> None:
    reasoner = Reasoner(vocabulary, SamplingOptions(), [Text(sample) for sample in range(2)])
    start = vocabulary.future_start
    handed = write_all(reasoner, vocabulary, (start, WORD), (WORD, WORD), (WORD, start), (WORD, WORD))
    assert handed == [[start, WORD], [vocabulary.pad, WORD], [vocabulary.pad, start]]
    assert [text.token_ids for text in reasoner.texts] == [[start], [WORD, WORD, start]]


@pytest.mark.parametrize("end", ["answer_end", "turn_end", "pad"])
def test_an_answer_ends_where_the_model_ends_it(vocabulary: Vocabulary, end: str) -> None:
    answerer = Answerer(vocabulary, SamplingOptions())
    token = getattr(vocabulary, end)
    assert answerer(logits_for(vocabulary, WORD)) == [WORD]
    assert answerer(logits_for(vocabulary, token)) == [token]
    assert answerer(logits_for(vocabulary, WORD)) is None


def test_an_answer_may_hold_trajectory_tokens(vocabulary: Vocabulary) -> None:
    token = vocabulary.trajectory_ids.start
    assert Answerer(vocabulary, SamplingOptions())(logits_for(vocabulary, token)) == [token]


def test_an_answer_ends_at_the_cap(vocabulary: Vocabulary) -> None:
    answerer = Answerer(vocabulary, SamplingOptions(max_reasoning_tokens=2))
    assert [answerer(logits_for(vocabulary, WORD)) for _ in range(3)] == [[WORD], [WORD], None]
