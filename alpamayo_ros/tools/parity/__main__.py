"""Compares the model with numbers that NVIDIA's code produced: `python -m alpamayo_ros.tools.parity GOLDEN_DIR`.

Prints one line per comparison, `PASS|FAIL name max_error tolerance`, `N/S name reason`, or `N/A name reason` for what
can't exist in the engine at hand and isn't counted; and last the counts. Exits with 1 when something failed or isn't
supported, and with 2 when there was nothing to compare.

With `--dtype bfloat16` or `float16` the whole model runs with such weights: it reads the recorded tokens and states,
and the error of every Euler step is printed. `--device` takes everything that has tensors to another device.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

import torch

from alpamayo_ros.core.types import AlpamayoError, ConfigurationError
from alpamayo_ros.engine.device import DTYPES, resolve_device
from alpamayo_ros.progress import progress
from alpamayo_ros.tools.command import guarded, run_command
from alpamayo_ros.tools.parity.case import Case, CaseResult, Checker, Machine, Status, not_supported
from alpamayo_ros.tools.parity.registry import CHECKERS, checkers_for


def find_cases(folder: Path, machine: Machine, known: Sequence[Checker] = CHECKERS) -> list[Case]:
    """Every case of every file in a folder. A file that can't be read is a case that fails.

    Raises:
        ConfigurationError: no such folder, or no golden file in it.
    """
    if not folder.is_dir():
        raise ConfigurationError(f"{folder} is not a folder; it has to be one of golden files")
    cases: list[Case] = []
    files = sorted(path for path in folder.iterdir() if path.is_file())
    for path in files:
        checkers = [checker for checker in known if fnmatchcase(path.name, checker.pattern)]
        if not checkers and path.suffix == ".npz":
            reason = f"nothing here checks a file named {path.name}"
            cases.append(Case(path.stem, lambda name=path.stem, reason=reason: [not_supported(name, reason)]))  # type: ignore[misc]
        for checker in checkers:
            try:
                cases.extend(checker.cases(path, machine))
            except Exception as error:
                cases.append(_failing(path.stem, f"{path.name} can't be read: {_describe(error)}"))
    if not cases:
        patterns = ", ".join(sorted({checker.pattern for checker in known}))
        raise ConfigurationError(f"{folder} holds no golden file; their names are {patterns}")
    return cases


def run(case: Case) -> Iterator[CaseResult]:
    """The results of a case; an exception in it is one that failed."""
    try:
        yield from case.check()
    except Exception as error:
        yield from _failing(case.name, _describe(error)).check()


def matches(name: str, wanted: str) -> bool:
    """Whether `wanted` names a result or a group of results: some consecutive parts of its name; globs are allowed."""
    parts, patterns = name.split("/"), wanted.strip("/").split("/")
    starts = range(len(parts) - len(patterns) + 1)
    return any(all(map(fnmatchcase, parts[start:], patterns)) for start in starts)


def compare(cases: list[Case], wanted: str | None) -> Iterator[tuple[Case, Iterator[CaseResult]]]:
    """The cases to run, each with its results, as far as they are wanted."""
    chosen = [case for case in cases if wanted is None or matches(case.name, wanted)]
    if chosen or wanted is None:
        yield from ((case, run(case)) for case in chosen)
    else:  # part of a case is wanted, and only running tells what its parts are
        near = [case for case in cases if wanted.strip("/").startswith(f"{case.name}/")] or cases
        for case in near:
            yield case, (result for result in run(case) if matches(result.name, wanted))


def main(arguments: list[str] | None = None) -> int:
    """Run the command; the exit status."""
    parser = argparse.ArgumentParser(prog="python -m alpamayo_ros.tools.parity", description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=Path, metavar="GOLDEN_DIR", help="a folder of golden files")
    parser.add_argument("--only", metavar="NAME", help="a file, a case or a quantity, such as action_space/left_turn")
    parser.add_argument(
        "--engine",
        choices=["transformers", "native", "vllm"],
        default="transformers",
        help="whose models (default: %(default)s)",
    )
    parser.add_argument("--device", default="cpu", help="auto, cpu, cuda or cuda:N (default: %(default)s)")
    parser.add_argument("--dtype", choices=list(DTYPES), default="float32", help="of the weights of whole models")
    options = parser.parse_args(arguments)
    return guarded(lambda: _compare_all(options), unusable=2)


def _compare_all(options: argparse.Namespace) -> int:
    machine = Machine(resolve_device(options.device), DTYPES[options.dtype])
    torch.backends.cudnn.allow_tf32 = False  # convolutions round to 10 bits by default, which the tolerances forbid
    counts = _print_results(find_cases(options.folder, machine, checkers_for(options.engine)), options.only)
    if not counts:
        raise ConfigurationError(f"--only {options.only} matches no case in {options.folder}")
    passed, failed, skipped = (counts[status] for status in (Status.PASS, Status.FAIL, Status.NOT_SUPPORTED))
    print(f"{passed} passed, {failed} failed, {skipped} not supported")
    return 1 if failed or skipped else 0


def _print_results(cases: list[Case], wanted: str | None) -> Counter[Status]:
    counts: Counter[Status] = Counter()
    chosen = list(compare(cases, wanted))
    with progress(chosen, unit=" cases") as bar:
        for case, results in bar:
            bar.set_description(case.name)
            for result in results:
                counts[result.status] += 1
                bar.write(result.line(), file=sys.stdout)
                sys.stdout.flush()
    return counts


def _failing(name: str, message: str) -> Case:
    results: Iterable[CaseResult] = [CaseResult(name, Status.FAIL, float("inf"), 0.0, message)]
    return Case(name, lambda: results)


def _describe(error: Exception) -> str:
    text = " ".join(str(error).split())
    return text if isinstance(error, AlpamayoError) else f"{type(error).__name__}: {text}"


if __name__ == "__main__":
    run_command(main)
