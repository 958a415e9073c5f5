"""How often the last tick's reasoning stands as the next one's draft, on drives that a checkpoint steers by itself.

Each route of the synthetic world is driven in a closed loop, tick after tick at 10 Hz, without ROS; every tick is given
the reasoning of the one before, as the node gives it. Drafts change no answer, only how many tokens are written one by
one: this counts them.

    python -m alpamayo_ros.tools.draft_acceptance --routes 5 --temperature 0.6
"""

from __future__ import annotations

import argparse
import json
import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from alpamayo_ros.core.settings import tick_seed
from alpamayo_ros.core.types import AlpamayoError, Array, ConfigurationError, Prediction, SamplingOptions
from alpamayo_ros.engine.base import Engine
from alpamayo_ros.engine.factory import KINDS, create_engine
from alpamayo_ros.progress import progress
from alpamayo_ros.sim.closed_loop import drive_closed_loop
from alpamayo_ros.sim.policies import Moment
from alpamayo_ros.sim.renderer import Renderer
from alpamayo_ros.sim.rig import rig
from alpamayo_ros.sim.world import FIRST_HELD_OUT_SEED, World
from alpamayo_ros.stop_signals import stop_on_signals
from alpamayo_ros.tools.command import guarded, run_command

FORMAT = "alpamayo_ros draft acceptance 1"
WRITING = [kind for kind in KINDS if kind != "null"]  # engines whose reasoning has tokens


@dataclass(frozen=True)
class DraftedTick:
    """A tick that had a draft."""

    draft_text: str  # the reasoning of the tick before
    text: str  # of this tick
    draft_tokens: int  # closing tokens included
    tokens: int  # that this tick's reasoning came to, closing tokens included
    accepted: int  # of the draft's, from the first on

    @property
    def stood(self) -> bool:
        """Whether the draft was the reasoning, in full."""
        return self.accepted == self.draft_tokens == self.tokens


@dataclass(frozen=True)
class Acceptance:
    """What drafts were worth over some ticks."""

    ticks: int
    stood: int  # ticks whose draft stood in full
    accepted: int  # tokens, of all ticks together
    tokens: int  # that were to be written

    @property
    def share_of_ticks(self) -> float:
        """Of the ticks, those whose draft stood in full."""
        return self.stood / self.ticks

    @property
    def share_of_tokens(self) -> float:
        """Of the tokens, those that drafts saved from being written one by one."""
        return self.accepted / self.tokens


def acceptance(ticks: Sequence[DraftedTick]) -> Acceptance:
    """Counted over ticks, of which there is one at least."""
    return Acceptance(
        len(ticks), sum(tick.stood for tick in ticks), sum(t.accepted for t in ticks), sum(t.tokens for t in ticks)
    )


def by_sentence(ticks: Sequence[DraftedTick]) -> dict[str, Acceptance]:
    """By the draft's text, the most frequent first."""
    groups: dict[str, list[DraftedTick]] = {}
    for tick in ticks:
        groups.setdefault(tick.draft_text, []).append(tick)
    return {text: acceptance(groups[text]) for text in sorted(groups, key=lambda text: -len(groups[text]))}


class DraftingPolicy:
    """Drives by an engine's first sample, and gives each tick the reasoning of the one before as draft."""

    def __init__(self, engine: Engine, options: SamplingOptions) -> None:
        self.ticks: list[DraftedTick] = []
        self._engine, self._options = engine, options
        self._last: Prediction | None = None

    def __call__(self, moment: Moment) -> Array:
        """The path [64, 3] m in ego."""
        t0_ns, last = moment.observation.t0_ns, self._last
        drafts = () if last is None else last.reasoning_token_ids[0]
        options = replace(self._options, seed=tick_seed(self._options.seed, t0_ns), draft_token_ids=drafts)
        prediction = self._engine.predict(moment.observation, options)
        if last is not None:
            self.ticks.append(
                DraftedTick(
                    last.reasoning[0],
                    prediction.reasoning[0],
                    len(drafts),
                    len(prediction.reasoning_token_ids[0]),
                    prediction.drafts_accepted,
                )
            )
        self._last = prediction
        return prediction.xyz[0]


def table(ticks: Sequence[DraftedTick]) -> str:
    """What stood, in all and by sentence, to be read by people."""
    rows = [("all", acceptance(ticks)), *by_sentence(ticks).items()]
    lines = [f"{'last reasoning':<58} ticks  in full  tokens accepted"]
    lines += [
        f"{text[:58]:<58} {row.ticks:5d}  {row.share_of_ticks:6.1%}  {row.accepted:6d} of {row.tokens} "
        f"({row.share_of_tokens:.1%})"
        for text, row in rows
    ]
    return "\n".join(lines)


def run(options: argparse.Namespace, stop: threading.Event) -> int:
    """Drive, print and write; the exit status."""
    if options.routes < 1:
        raise ConfigurationError(f"--routes {options.routes}: expected at least 1")
    sampling = SamplingOptions(
        num_samples=1,
        temperature=options.temperature,
        max_reasoning_tokens=options.max_reasoning_tokens,
        noise_temperature=options.noise_temperature,
    )
    engine = create_engine(options.engine, options.checkpoint, device=options.device, max_cameras=4)
    cameras, ticks = rig(*options.size), list[DraftedTick]()
    try:
        engine.warm_up()
        for seed in progress(range(options.first_seed, options.first_seed + options.routes), unit=" routes"):
            if stop.is_set():
                raise AlpamayoError("interrupted; nothing was written")
            world, policy = World.random(seed, options.length), DraftingPolicy(engine, sampling)
            drive_closed_loop(world, policy, renderer=Renderer(world, cameras))
            ticks += policy.ticks
        facts = engine.info.describe()
    finally:
        engine.close()
    print(f"{facts}\ntemperature {options.temperature:g}, {options.routes} routes\n{table(ticks)}")
    if options.out is not None:
        options.out.write_text(json.dumps(_report(options, facts, ticks), indent=1) + "\n", encoding="utf-8")
    return 0


def _report(options: argparse.Namespace, engine: str, ticks: Sequence[DraftedTick]) -> dict[str, object]:
    parts = {"all": acceptance(ticks), **by_sentence(ticks)}
    return {
        "format": FORMAT,
        "engine": engine,
        "temperature": options.temperature,
        "routes": options.routes,
        "acceptance": {
            text: {
                "ticks": part.ticks,
                "stood_in_full": part.stood,
                "tokens": part.tokens,
                "tokens_accepted": part.accepted,
            }
            for text, part in parts.items()
        },
    }


def build_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m alpamayo_ros.tools.draft_acceptance",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--routes", type=int, default=5, help="default 5")
    add("--length", type=float, default=500.0, metavar="M", help="of each route (default 500)")
    add("--first-seed", type=int, default=FIRST_HELD_OUT_SEED, help=f"of the worlds (default {FIRST_HELD_OUT_SEED})")
    add("--engine", choices=WRITING, default="transformers", help="default transformers")
    add("--checkpoint", default="mini", help="default mini, which comes with the package")
    add("--device", default="auto", help="default auto: cuda where there is one")
    add("--temperature", type=float, default=0.6, help="of the reasoning; 0 is greedy (default 0.6, the node's)")
    add("--noise-temperature", type=float, default=0.5, help="of the trajectories (default 0.5)")
    add("--max-reasoning-tokens", type=int, default=24, metavar="N", help="default 24")
    add("--size", type=int, nargs=2, default=[160, 96], metavar=("WIDTH", "HEIGHT"), help="pixels (default 160 96)")
    add("--out", type=Path, metavar="FILE.json", help="writes the figures there")
    return parser


def main(arguments: list[str] | None = None) -> int:
    """Run the command; returns the exit status."""
    options = build_parser().parse_args(arguments)
    stop = stop_on_signals()
    return guarded(lambda: run(options, stop))


if __name__ == "__main__":
    run_command(main)
