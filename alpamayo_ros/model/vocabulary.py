"""Token ids by their names, from a tokenizer and the model's config; no id stands in code.

Alpamayo's vocabulary is the backbone's, then the trajectory tokens `<i0>`, `<i1>`, ..., then special tokens in a fixed
order (NVlabs/alpamayo1.5, models/base_model.py). The published checkpoints come without a tokenizer: the backbone's is
extended here. Alpamayo R1 and 1.5 differ in the names of tokens that inference doesn't use.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tokenizers import AddedToken, Tokenizer

from alpamayo_ros.core.types import ConfigurationError

# In the order of their ids; the pairs are the names in R1 and in 1.5. `<|image_pad|>` exists in the backbone's
# vocabulary and keeps its id.
_SPECIAL_TOKENS: tuple[str | tuple[str, str], ...] = (
    "prompt_start",
    "prompt_end",
    "image_start",
    ("image_pre_tkn", "_padding_0"),
    "image_end",
    "traj_history_start",
    ("traj_history_pre_tkn", "_padding_1"),
    "traj_history_end",
    "cot_start",
    "cot_end",
    ("meta_action_start", "_padding_2"),
    ("meta_action_end", "_padding_3"),
    "traj_future_start",
    ("traj_future_pre_tkn", "_padding_4"),
    "traj_future_end",
    "traj_history",
    "traj_future",
    "image_pad",
    ("vectorized_wm", "_padding_5"),
    ("vectorized_wm_start", "_padding_6"),
    ("vectorized_wm_end", "_padding_7"),
    ("vectorized_wm_pre_tkn", "_padding_8"),
    "route_start",
    "route_pad",
    "route_end",
    "question_start",
    "question_end",
    "answer_start",
    "answer_end",
)
MODEL_TYPES = ("alpamayo_r1", "alpamayo1_5")  # in the order of the pairs


def special_token_names(model_type: str) -> list[str]:
    """The special tokens of a model in the order in which they are added.

    Raises:
        ConfigurationError: a model type that isn't known.
    """
    if model_type not in MODEL_TYPES:
        raise ConfigurationError(f"model_type is {model_type!r}; it has to be one of {', '.join(MODEL_TYPES)}")
    column = MODEL_TYPES.index(model_type)
    return [f"<|{name if isinstance(name, str) else name[column]}|>" for name in _SPECIAL_TOKENS]


@dataclass(frozen=True)
class VocabularyConfig:
    """What config.json says about the vocabulary."""

    model_type: str  # "alpamayo1_5" or "alpamayo_r1"
    vocab_size: int  # rows of the embedding
    traj_token_start_idx: int  # id of <i0>
    traj_vocab_size: int  # number of <i*> tokens
    traj_token_ids: Mapping[str, int]  # ids by name: "history", "future_start", ...
    future_bins: int  # the first <i*> tokens, for a discretised future; inference doesn't use them
    history_bins: int  # the <i*> tokens after those, for the ego history

    def __post_init__(self) -> None:
        if self.future_bins + self.history_bins > self.traj_vocab_size:
            raise ConfigurationError(
                f"traj_vocab_size is {self.traj_vocab_size}; it has to hold {self.future_bins} bins of the future "
                f"and {self.history_bins} of the history"
            )

    @classmethod
    def from_json(cls, config: Mapping[str, Any], history_bins: int) -> VocabularyConfig:
        """Read config.json.

        Args:
            config: The whole of config.json.
            history_bins: How many bins its history tokenizer has.

        Raises:
            ConfigurationError: a missing key, or a value of another type.
        """
        if config.get("add_special_tokens", True) is not True:
            raise ConfigurationError("add_special_tokens is false in config.json; only true is supported")
        return cls(
            model_type=_get(config, "model_type", str),
            vocab_size=_get(config, "vocab_size", int),
            traj_token_start_idx=_get(config, "traj_token_start_idx", int),
            traj_vocab_size=_get(config, "traj_vocab_size", int),
            traj_token_ids=dict(_get(config, "traj_token_ids", dict)),
            future_bins=_get(_get(config, "traj_tokenizer_cfg", dict), "num_bins", int, "traj_tokenizer_cfg."),
            history_bins=history_bins,
        )


class Vocabulary:
    """The model's tokenizer and the ids that it gives to the tokens which code speaks of."""

    def __init__(self, tokenizer: Tokenizer, config: VocabularyConfig) -> None:
        """Extend a tokenizer and check it against the config.

        Args:
            tokenizer: The backbone's, which is extended in place, or one that has Alpamayo's tokens already.
            config: The model's.

        Raises:
            ConfigurationError: the tokenizer doesn't belong to this model.
        """
        self.config = config
        self.tokenizer = _extended(tokenizer, config)
        self.size = config.vocab_size
        self._added = frozenset(self.tokenizer.get_added_tokens_decoder())
        self._check()
        # Qwen's
        self.pad = self.id_of("<|endoftext|>")
        self.turn_end = self.id_of("<|im_end|>")
        self.vision_start = self.id_of("<|vision_start|>")
        self.vision_end = self.id_of("<|vision_end|>")
        self.image_pad = self.id_of("<|image_pad|>")
        # Alpamayo's
        self.history_placeholder = self.id_of("<|traj_history|>")
        self.reasoning_start = self.id_of("<|cot_start|>")
        self.reasoning_end = self.id_of("<|cot_end|>")
        self.future_start = self.id_of("<|traj_future_start|>")
        self.route_start = self.id_of("<|route_start|>")
        self.route_end = self.id_of("<|route_end|>")
        self.answer_start = self.id_of("<|answer_start|>")
        self.answer_end = self.id_of("<|answer_end|>")
        start = config.traj_token_start_idx
        self.trajectory_ids = range(start, start + config.traj_vocab_size)  # never written as reasoning
        first = start + config.future_bins
        self.history_ids = range(first, first + config.history_bins)

    def id_of(self, name: str) -> int:
        """The id of a token.

        Raises:
            ConfigurationError: the tokenizer has no such token.
        """
        token_id = self.tokenizer.token_to_id(name)
        if token_id is None:
            raise ConfigurationError(f"the tokenizer has no token {name}; is it the backbone's?")
        return int(token_id)

    def encode(self, text: str) -> list[int]:
        """Token ids of a text; names of special tokens in it become those tokens."""
        return list(self.tokenizer.encode(text, add_special_tokens=False).ids)

    def decode(self, token_ids: Sequence[int]) -> str:
        """The text of token ids, special tokens by their names."""
        return str(self.tokenizer.decode(list(token_ids), skip_special_tokens=False))

    def added_tokens_in(self, text: str) -> list[str]:
        """Names in a text that would become special or trajectory tokens instead of words."""
        return [str(self.tokenizer.id_to_token(i)) for i in self.encode(text) if i in self._added]

    def text_between(self, token_ids: Sequence[int], component: str) -> str:
        """What stands between the last `<|component_start|>` and the first `<|component_end|>` after it.

        Empty when either is missing. Components are "cot", "meta_action" and "answer".
        """
        start, end = f"<|{component}_start|>", f"<|{component}_end|>"
        text = self.decode(token_ids)
        after = text.split(start)[-1]
        return after.split(end)[0] if start in text and end in after else ""

    def _check(self) -> None:
        config = self.config
        size = self.tokenizer.get_vocab_size()
        if size != config.vocab_size:
            raise ConfigurationError(
                f"the tokenizer has {size} tokens; vocab_size in config.json is {config.vocab_size}"
            )
        last = config.traj_vocab_size - 1
        expected = {"<i0>": config.traj_token_start_idx, f"<i{last}>": config.traj_token_start_idx + last}
        expected |= {f"<|traj_{name}|>": token_id for name, token_id in config.traj_token_ids.items()}
        for name, token_id in expected.items():
            if self.id_of(name) != token_id:
                raise ConfigurationError(
                    f"the tokenizer's id of {name} is {self.id_of(name)}; config.json says {token_id}"
                )


def _extended(tokenizer: Tokenizer, config: VocabularyConfig) -> Tokenizer:
    """The tokenizer with Alpamayo's tokens, under the names that the model type has."""
    specials = special_token_names(config.model_type)
    first = tokenizer.token_to_id("<i0>")
    if first is not None:
        if all(tokenizer.token_to_id(name) is not None for name in specials):
            return tokenizer
        tokenizer = _without_added(tokenizer, first)
    size = tokenizer.get_vocab_size()
    if size != config.traj_token_start_idx:
        raise ConfigurationError(
            f"the backbone's tokenizer has {size} tokens; traj_token_start_idx in config.json says "
            f"{config.traj_token_start_idx}, so it belongs to another backbone"
        )
    names = (f"<i{index}>" for index in range(config.traj_vocab_size))
    tokenizer.add_tokens([AddedToken(name, normalized=True, special=False) for name in names])
    tokenizer.add_special_tokens([AddedToken(name, normalized=False, special=True) for name in specials])
    return tokenizer


def _without_added(tokenizer: Tokenizer, first: int) -> Tokenizer:
    """The tokenizer without the added tokens from an id on: another model's names for the same ids."""
    description = json.loads(tokenizer.to_str())
    description["added_tokens"] = [token for token in description["added_tokens"] if token["id"] < first]
    return Tokenizer.from_str(json.dumps(description))


def _get(config: Mapping[str, Any], key: str, kind: type, section: str = "") -> Any:
    if key not in config:
        raise ConfigurationError(f"config.json has no {section}{key}")
    if not isinstance(config[key], kind) or isinstance(config[key], bool):
        raise ConfigurationError(
            f"{section}{key} in config.json is {config[key]!r}; it has to be of type {kind.__name__}"
        )
    return config[key]
