"""Checks history_tokens.npz: bins, token ids, and the positions that bins stand for."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
import torch

from alpamayo_ros.model.history_tokens import HistoryTokenizer, HistoryTokenizerConfig
from alpamayo_ros.tools.parity.case import Case, CaseResult, Checker, Machine, close, equal, not_supported

DECODED_TOLERANCE = 1e-5  # m; the same sum, whose order may differ from one machine to another


def _cases(path: Path, _machine: Machine) -> Iterator[Case]:
    with np.load(path) as file:
        arrays = dict(file)
    for index, name in enumerate(arrays["case_names"]):
        case = {key: values[index] for key, values in arrays.items()}
        yield Case(f"{path.stem}/{name}", partial(_check, f"{path.stem}/{name}", case, path.parent / "prompts.json"))


def _check(name: str, case: dict[str, np.ndarray], prompts: Path) -> Iterator[CaseResult]:
    tokenizer = HistoryTokenizer(HistoryTokenizerConfig())
    bins = tokenizer.encode(torch.from_numpy(case["hist_xyz"]))
    yield equal(f"{name}/bins", bins, case["bins"])
    if prompts.is_file():
        first = json.loads(prompts.read_text())["history_bin0_id"]
        yield equal(f"{name}/token_ids", bins + first, case["token_ids"])
    else:
        yield not_supported(f"{name}/token_ids", "prompts.json, which has the id of the first bin, is missing")
    decoded = tokenizer.decode(torch.from_numpy(case["bins"]))
    yield close(f"{name}/decoded_xyz", decoded, case["decoded_xyz"], DECODED_TOLERANCE)


HISTORY_TOKENS = Checker("history_tokens*.npz", _cases)
