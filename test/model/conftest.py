"""A small byte-level tokenizer with Qwen's special tokens, whose ids are not NVIDIA's."""

from pathlib import Path

import pytest
from tiny_checkpoint import write_tiny_checkpoint
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from alpamayo_ros.model.vocabulary import Vocabulary, VocabularyConfig, special_token_names

QWEN_TOKENS = (
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|image_pad|>",
    "<|video_pad|>",
)
BINS = 10  # of the history; as many of the future


def byte_level_tokenizer() -> Tokenizer:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={letter: index for index, letter in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(list(QWEN_TOKENS))
    return tokenizer


def small_config(model_type: str = "alpamayo1_5") -> VocabularyConfig:
    start = 256 + len(QWEN_TOKENS)
    new_tokens = [name for name in special_token_names(model_type) if name not in QWEN_TOKENS]
    first_special = start + 2 * BINS
    return VocabularyConfig(
        model_type=model_type,
        vocab_size=first_special + len(new_tokens),
        traj_token_start_idx=start,
        traj_vocab_size=2 * BINS,
        traj_token_ids={
            "history": first_special + new_tokens.index("<|traj_history|>"),
            "future_start": first_special + new_tokens.index("<|traj_future_start|>"),
        },
        future_bins=BINS,
        history_bins=BINS,
    )


@pytest.fixture
def tokenizer() -> Tokenizer:
    return byte_level_tokenizer()


@pytest.fixture
def config() -> VocabularyConfig:
    return small_config()


@pytest.fixture
def r1_config() -> VocabularyConfig:
    return small_config("alpamayo_r1")


@pytest.fixture(scope="session")
def vocabulary() -> Vocabulary:
    return Vocabulary(byte_level_tokenizer(), small_config())


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A whole checkpoint on disk."""
    return write_tiny_checkpoint(tmp_path_factory.mktemp("checkpoints") / "tiny")
