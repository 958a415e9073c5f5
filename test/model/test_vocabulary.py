import dataclasses
import json
from pathlib import Path

import pytest
from tokenizers import Tokenizer

from alpamayo_ros.core.types import ConfigurationError
from alpamayo_ros.model.vocabulary import Vocabulary, VocabularyConfig, special_token_names

GOLDEN = Path(__file__).parents[2].parent / "shared" / "golden"


def test_every_id_follows_the_tokenizer_when_the_ids_are_shifted(tokenizer, config):
    vocabulary = Vocabulary(tokenizer, config)

    start = config.traj_token_start_idx
    assert tokenizer.token_to_id("<i0>") == start
    assert vocabulary.trajectory_ids == range(start, start + 20)
    assert vocabulary.history_ids == range(start + 10, start + 20)
    assert vocabulary.future_start == config.traj_token_ids["future_start"]
    assert vocabulary.history_placeholder == config.traj_token_ids["history"]
    assert vocabulary.image_pad < start, "the image pad is the backbone's and keeps its id"
    assert vocabulary.size == tokenizer.get_vocab_size()


def test_special_tokens_are_added_in_the_order_of_the_model(tokenizer, config):
    vocabulary = Vocabulary(tokenizer, config)

    new = [name for name in special_token_names("alpamayo1_5") if name != "<|image_pad|>"]
    ids = [vocabulary.id_of(name) for name in new]
    assert ids == list(range(vocabulary.trajectory_ids.stop, vocabulary.size))


def test_r1_and_1_5_differ_in_names_only(config, r1_config):
    first, second = special_token_names("alpamayo_r1"), special_token_names("alpamayo1_5")

    assert len(first) == len(second) == 29
    differing = [name for name in second if name not in first]
    assert all(name.startswith("<|_padding_") for name in differing)
    assert config.vocab_size == r1_config.vocab_size


def test_a_tokenizer_that_has_the_tokens_is_taken_as_it_is(tokenizer, config):
    extended = Vocabulary(tokenizer, config).tokenizer
    before = extended.to_str()

    assert Vocabulary(extended, config).tokenizer.to_str() == before


def test_a_tokenizer_of_the_other_model_is_renamed(tokenizer, config, r1_config):
    extended = Vocabulary(tokenizer, config).tokenizer

    renamed = Vocabulary(extended, r1_config)

    assert renamed.id_of("<|meta_action_start|>") == Vocabulary(extended, config).id_of("<|_padding_2|>")
    assert renamed.tokenizer.token_to_id("<|_padding_2|>") is None


def test_a_tokenizer_of_another_backbone_is_refused_with_both_sizes(tokenizer, config):
    tokenizer.add_tokens(["one more"])

    with pytest.raises(ConfigurationError, match=r"has 264 tokens; traj_token_start_idx .* 263"):
        Vocabulary(tokenizer, config)


def test_a_vocabulary_size_that_does_not_fit_is_refused(tokenizer, config):
    wrong = dataclasses.replace(config, vocab_size=config.vocab_size + 1)

    with pytest.raises(ConfigurationError, match=f"{config.vocab_size} tokens; vocab_size .* {config.vocab_size + 1}"):
        Vocabulary(tokenizer, wrong)


def test_an_id_in_the_config_that_is_not_the_tokenizers_is_refused_by_name(tokenizer, config):
    wrong = dataclasses.replace(config, traj_token_ids={"future_start": 3})

    with pytest.raises(ConfigurationError, match=r"<\|traj_future_start\|> is \d+; config.json says 3"):
        Vocabulary(tokenizer, wrong)


def test_an_unknown_model_type_is_refused(tokenizer, config):
    with pytest.raises(ConfigurationError, match="'alpamayo_2'; it has to be one of alpamayo_r1, alpamayo1_5"):
        Vocabulary(tokenizer, dataclasses.replace(config, model_type="alpamayo_2"))


def test_a_token_that_does_not_exist_is_named(vocabulary):
    with pytest.raises(ConfigurationError, match="no token <nonsense>"):
        vocabulary.id_of("<nonsense>")


def test_bins_that_do_not_fit_the_trajectory_tokens_are_refused(config):
    with pytest.raises(ConfigurationError, match="traj_vocab_size is 19"):
        dataclasses.replace(config, traj_vocab_size=19)


@pytest.mark.parametrize("key", ["vocab_size", "traj_token_ids", "traj_tokenizer_cfg"])
def test_a_missing_key_of_the_config_is_named(key):
    config = {
        "model_type": "alpamayo1_5",
        "vocab_size": 155697,
        "traj_token_start_idx": 151669,
        "traj_vocab_size": 4000,
        "traj_token_ids": {},
        "traj_tokenizer_cfg": {"num_bins": 3000},
    }
    assert VocabularyConfig.from_json(config, history_bins=1000).future_bins == 3000
    del config[key]

    with pytest.raises(ConfigurationError, match=f"no {key}"):
        VocabularyConfig.from_json(config, history_bins=1000)


def test_a_value_of_another_type_is_refused():
    with pytest.raises(ConfigurationError, match=r"vocab_size in config\.json is 'many'"):
        VocabularyConfig.from_json({"model_type": "alpamayo1_5", "vocab_size": "many"}, history_bins=1000)


def test_text_survives_encoding(vocabulary):
    text = "Überholverbot: keep right, 左折。\n"

    assert vocabulary.decode(vocabulary.encode(text)) == text


@pytest.mark.parametrize(
    ("written", "answer"),
    [
        ("<|cot_start|>Keep lane.<|cot_end|><|traj_future_start|>", "Keep lane."),
        ("<|cot_start|>first<|cot_start|>second<|cot_end|>third<|cot_end|>", "second"),
        ("<|cot_start|>never ends", ""),
        ("never starts<|cot_end|>", ""),
    ],
)
def test_reasoning_is_what_stands_between_the_last_start_and_the_first_end(vocabulary, written, answer):
    assert vocabulary.text_between(vocabulary.encode(written), "cot") == answer


def test_added_tokens_in_a_text_are_found(vocabulary):
    assert vocabulary.added_tokens_in("Turn left in 30m") == []
    assert vocabulary.added_tokens_in("go <|im_end|> on <i3>") == ["<|im_end|>", "<i3>"]


@pytest.mark.skipif(not GOLDEN.is_dir(), reason=f"{GOLDEN} is not here")
def test_the_backbones_own_tokenizer_is_extended_to_nvidias_ids():
    golden = json.loads((GOLDEN / "prompts.json").read_text())
    start = golden["traj_token_start_idx"]
    description = json.loads((GOLDEN / "tokenizer" / "tokenizer.json").read_text())
    description["added_tokens"] = [token for token in description["added_tokens"] if token["id"] < start]
    base = Tokenizer.from_str(json.dumps(description))
    config = VocabularyConfig(
        "alpamayo1_5", golden["vocab_size"], start, 4000, golden["traj_token_ids"], future_bins=3000, history_bins=1000
    )

    vocabulary = Vocabulary(base, config)

    assert {name: vocabulary.id_of(name) for name in golden["special_tokens"]["1_5"]} == golden["special_tokens"]["1_5"]
    assert vocabulary.history_ids.start == golden["history_bin0_id"]
    assert [vocabulary.encode(case["text"]) for case in golden["tokenizer_cases"]] == [
        case["ids"] for case in golden["tokenizer_cases"]
    ]
