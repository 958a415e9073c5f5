"""Makes a scenario for the simulator from a bag: every frame's and pose's arrival, without the images.

The scenario has a tick wherever the node would have decided one. Without --config the cameras and the odometry are
those that the bag holds, all of them required.

  python -m alpamayo_ros.tools.bag_to_scenario BAG > drive.jsonl
  python -m alpamayo_ros.tools.simulate drive.jsonl
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

from alpamayo_ros.core.types import ConfigurationError
from alpamayo_ros.evaluation.bag import BagReader
from alpamayo_ros.evaluation.bag_scenario import bag_events, settings_of_bag
from alpamayo_ros.evaluation.inputs import BagInputs
from alpamayo_ros.evaluation.partial_folder import partial_folder
from alpamayo_ros.evaluation.rig import check_odometry_topic, load_rig, parameter_argument
from alpamayo_ros.evaluation.scenario_writer import config_line, event_line
from alpamayo_ros.evaluation.simulation import with_ticks
from alpamayo_ros.tools.command import guarded, number_within, run_command


def build_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m alpamayo_ros.tools.bag_to_scenario",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("bag", type=Path, metavar="BAG", help="a bag's folder, or a .mcap or .db3 file")
    add("--out", type=Path, metavar="FILE", help="where the scenario goes (default: the standard output)")
    add("--config", type=Path, metavar="RIG.yaml", help="the node's parameter file for this rig")
    add("--odometry-topic", metavar="TOPIC", help="default: as in the config, or the bag's only one")
    add(
        "--start",
        type=number_within(1e9),
        default=0.0,
        metavar="SECONDS",
        help="leave out so much of the bag (default 0)",
    )
    add("--duration", type=float, default=float("inf"), metavar="SECONDS", help="take so much of it (default: all)")
    add(
        *("-p", "--parameter"),
        action="append",
        default=[],
        metavar="NAME:=VALUE",
        help="a parameter of the node, such as -p sync_tolerance:=0.03; may be repeated",
    )
    return parser


def main(arguments: list[str] | None = None) -> int:
    """Run the command; 0 when there is a scenario, 1 when something can't be used."""
    options = build_parser().parse_args(arguments)
    return guarded(lambda: _convert(options))


def _convert(options: argparse.Namespace) -> int:
    if not options.duration > 0:
        raise ConfigurationError(f"--duration {options.duration}: expected more than 0 s")
    changes: dict[str, Any] = dict(map(parameter_argument, options.parameter))
    if options.odometry_topic:
        changes["odometry.topic"] = options.odometry_topic
    with BagReader(options.bag) as bag:
        settings = load_rig(options.config, changes) if options.config else settings_of_bag(bag, changes)
        check_odometry_topic(settings, options.odometry_topic)
        config = settings.builder_config()
        inputs = BagInputs(bag, settings)
        events = bag_events(bag, inputs, options.start, options.duration)
        with _output(options.out) as file:
            _write(file, config_line(config))
            for event in with_ticks(config, events):
                _write(file, event_line(event))
            file.flush()
        for warning in [*bag.warnings, *inputs.warnings]:
            print(f"warning: {warning}", file=sys.stderr)
    return 0


@contextmanager
def _output(path: Path | None) -> Iterator[TextIO]:
    """The standard output, or a file that appears when all is written."""
    if path is None:
        yield sys.stdout
    elif path.exists() and not path.is_file():  # a pipe
        with path.open("w") as file:
            yield file
    else:
        with partial_folder(path.parent, path.name) as folder:
            with (folder / path.name).open("w") as file:
                yield file
            (folder / path.name).replace(path)


def _write(file: TextIO, line: str) -> None:
    file.write(line + "\n")


if __name__ == "__main__":
    run_command(main)
