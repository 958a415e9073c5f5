"""Ticks as lines for machines, and what they come to.

`tick_record` makes a tick's line of ticks.jsonl; `summarise` needs nothing but those lines, so that reports can be
compared and drawn from the files alone.
"""

from __future__ import annotations

import platform
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from importlib import metadata
from typing import Any

from alpamayo_ros import __version__
from alpamayo_ros.core.metrics import MISS_DISTANCE
from alpamayo_ros.engine.base import EngineInfo
from alpamayo_ros.evaluation.replay import Tick
from alpamayo_ros.evaluation.scores import STEPS, Figures, finite, speed_at_t0
from alpamayo_ros.evaluation.summary import against_baselines, aggregate, by_manoeuvre, by_speed, timing

OPEN_LOOP = (
    "These are open-loop errors: they compare each predicted path with the one that was driven, and don't tell how "
    "well the model would drive."
)
RANDOM_WEIGHTS = "The weights are random: the predicted paths mean nothing, and neither do the model's figures."
NO_MODEL = "No model ran: the null engine keeps the vehicle's speed and goes straight on."
PACKAGES = ("numpy", "torch", "transformers", "rosbags", "opencv-python-headless", "matplotlib")

Record = dict[str, Any]


def tick_record(tick: Tick, figures: Figures | None) -> Record:
    """A tick's line: plain JSON types, every key in every line."""
    observation, prediction, chosen = tick.observation, tick.prediction, tick.chosen
    record: Record = {
        "t0_ns": tick.t0_ns,
        "decided_ns": tick.now_ns,
        "skip": None if tick.skip is None else tick.skip.reason.value,
        "skip_numbers": {} if tick.skip is None else tick.skip.numbers,
        "seed": tick.seed,
        "navigation": None if observation is None else observation.navigation,
        "speed": None if observation is None else speed_at_t0(observation),
        "position": None if observation is None else observation.pose.position,
        "chosen": None,
        "reasoning": None,
        "reasoning_of_samples": None,
        "finish_reason": None,
        "drafts_accepted": None,
        "reasoning_tokens": None,
        "frames_encoded": None,
        "frames_reused": None,
        "timings_ms": {},
        "metrics": figures,
    }
    if prediction is not None and chosen is not None:
        of_text = max(chosen.index, 0)
        texts, timings = list(prediction.reasoning), prediction.timings
        record |= {
            "chosen": chosen.index,
            "reasoning": texts[of_text],
            "reasoning_of_samples": texts if len(set(texts)) > 1 else None,
            "finish_reason": prediction.finish_reasons[of_text],
            "drafts_accepted": prediction.drafts_accepted,
            "reasoning_tokens": timings.reasoning_tokens,
            "frames_encoded": timings.frames_encoded,
            "frames_reused": timings.frames_reused,
            "timings_ms": {
                **timings.stages_ms,
                "ahead_of_tick": tick.prepare_ms,  # decoding and encoding of frames before the tick was decided
                "engine_total": tick.engine_ms,  # from the observation to the prediction: what adds to the latency
            },
        }
    plain: Record = finite(record)
    return plain


def summarise(records: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What the ticks come to: counts, skips by reason, every figure with its n, timings."""
    ok = [record for record in records if record["skip"] is None]
    skips = Counter(record["skip"] for record in records if record["skip"] is not None)
    scored = [record["metrics"] for record in ok if record["metrics"] is not None]
    stages = list(dict.fromkeys(stage for record in ok for stage in record["timings_ms"]))
    return {
        "ticks": {
            "total": len(records),
            "ok": len(ok),
            "skipped": sum(skips.values()),
            "with_full_future": sum(figures["recorded_steps"] == max(STEPS.values()) for figures in scored),
        },
        "skips": dict(skips.most_common()),
        "metrics": aggregate(scored),
        "against_baselines": against_baselines(ok),
        "by_speed": by_speed(ok),
        "by_manoeuvre": by_manoeuvre(ok),
        "timings_ms": {stage: timing([record["timings_ms"].get(stage) for record in ok]) for stage in stages},
    }


def notes(engine: str, *, trained: bool) -> list[str]:
    """What a reader has to know before the figures, in words.

    Args:
        engine: its kind, as in EngineInfo.
        trained: whether its weights are.
    """
    if engine == "null":
        return [OPEN_LOOP, NO_MODEL]
    return [OPEN_LOOP] if trained else [OPEN_LOOP, RANDOM_WEIGHTS]


def picture_warning(engine: str, *, trained: bool) -> str:
    """The same in a few words for a picture that may be seen alone; "" where the paths mean what they say."""
    if engine == "null":
        return "no model: the null engine goes straight on"
    return "" if trained else "random weights: meaningless path"


def engine_facts(info: EngineInfo) -> dict[str, Any]:
    """The engine and its checkpoint."""
    return asdict(info)


def versions() -> dict[str, str]:
    """Of Python and of the packages that the figures depend on, where they are installed."""
    found = {"alpamayo_ros": __version__, "python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found


def table(report: Mapping[str, Any]) -> str:
    """The figures that matter most, for a terminal: model and baselines, errors in m."""
    metrics = report["metrics"]
    if not metrics:
        return "no tick has both a prediction and a recorded future"
    rows = {
        "chosen path": metrics["chosen"],
        "best sample": metrics["best"],
        **{name.replace("_", " "): figures for name, figures in metrics["baselines"].items()},
    }
    horizons = list(STEPS)
    width = max(map(len, rows)) + 1
    lines = [f"{'ADE in m at':<{width}}" + "".join(f"{horizon + ' s':>9}" for horizon in horizons) + f"{'missed':>9}"]
    for name, figures in rows.items():
        misses = figures["miss"][horizons[-1]]["rate"]
        missed = "-" if misses is None else f"{misses:.0%}"
        cells = "".join(f"{_number(figures['ade'][horizon]['mean']):>9}" for horizon in horizons)
        lines.append(f"{name:<{width}}{cells}{missed:>9}")
    counts = "".join(f"{metrics['chosen']['ade'][horizon]['n']:>9}" for horizon in horizons)
    lines.append(f"{'ticks':<{width}}{counts}")
    known = {k: each["mean"] for k, each in metrics["min_ade"].items() if each["n"]}
    listed = ", ".join(f"minADE_{k} {_number(value)} m" for k, value in known.items())
    lines.append(f"{listed or 'minADE unknown'} (missed: more than {MISS_DISTANCE:g} m off after {horizons[-1]} s)")
    return "\n".join(lines)


def skip_table(skips: Mapping[str, int]) -> str:
    """How many ticks were skipped, by reason."""
    return "\n".join(f"  {reason:<22}{count:>6}" for reason, count in skips.items()) or "  none"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"
