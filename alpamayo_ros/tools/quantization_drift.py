"""How far FP8 layers take the native engine's answers from exact ones, on held-out ticks of the synthetic world.

The same ticks run with exact layers and with FP8 ones: the logits after the prompt, the path with the expert driver's
sentence given and the same noise, and what both drive and say by themselves. With the small checkpoint the scores mean
something; with random weights, such as those of full size, only the distances do. On a CPU the FP8 numbers are
simulated.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from alpamayo_ros.engine.factory import QUANTIZATIONS
from alpamayo_ros.tools.answer_drift import answers_by, drift, scores_of, tell
from alpamayo_ros.tools.command import guarded, run_command
from alpamayo_ros.tools.mini_scores import held_out_ticks
from alpamayo_ros.tools.train_mini import SCORED_EVERY, SCORED_SECONDS, record_held_out

EXACT = "none"


def main(arguments: list[str] | None = None) -> int:
    """Run the command; the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m alpamayo_ros.tools.quantization_drift",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--checkpoint", default="mini", help="a folder or Hugging Face name (default: %(default)s)")
    parser.add_argument("--quantization", nargs="+", choices=QUANTIZATIONS[1:], default=["fp8"], help="(default: fp8)")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda or cuda:N (default: %(default)s)")
    parser.add_argument("--drives", type=int, default=20, help="held-out drives of 20 s (default: %(default)s)")
    parser.add_argument(
        "--every", type=int, default=SCORED_EVERY, help="of their ticks, one in so many (default: %(default)s)"
    )
    cores = max((os.cpu_count() or 2) - 1, 1)
    parser.add_argument("--workers", type=int, default=cores, help="that record drives (default: %(default)s)")
    parser.add_argument("--out", type=Path, metavar="FILE", help="a file for the figures as JSON")
    options = parser.parse_args(arguments)
    return guarded(lambda: _work(options))


def _work(options: argparse.Namespace) -> int:
    ticks = held_out_ticks(record_held_out(options.drives, SCORED_SECONDS, options.workers), options.every)
    answers = {
        each: answers_by(options.checkpoint, ticks, each, device=options.device, quantization=each)
        for each in (EXACT, *options.quantization)
    }
    exact = answers[EXACT]
    figures = {
        each: drift(exact, answers[each]) | {"exact": scores_of(exact), "quantized": scores_of(answers[each])}
        for each in options.quantization
    }
    tell(figures, options.out)
    return 0


if __name__ == "__main__":
    run_command(main)
