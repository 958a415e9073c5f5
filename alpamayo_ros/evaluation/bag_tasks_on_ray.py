"""The same tasks on the machines of a Ray cluster, which share the folders of bags and results.

Ray gives each task a CPU core, and a GPU where the engine needs one; it starts those again whose machine is lost.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from alpamayo_ros.core.types import ConfigurationError
from alpamayo_ros.evaluation.bag_tasks import PATIENCE, POLL, BagResult, BagTask, interrupt, result, start
from alpamayo_ros.evaluation.output_folder import is_evaluation
from alpamayo_ros.progress import progress

LOCAL = "local"  # the address that starts a cluster on this machine


def run_all_on_ray(wanted: Sequence[BagTask], address: str, jobs: int | None, *, gpu: bool) -> list[BagResult]:
    """Run the tasks; one that fails doesn't stop the others. In the order in which they were given.

    Args:
        wanted: their paths must be the same on every machine of the cluster.
        address: of the cluster, as for ray.init: "auto", "HOST:PORT", "ray://HOST:PORT"; "local" starts one here.
        jobs: at most so many at a time; None: as many as the cluster has room for.
        gpu: whether each needs a GPU, where the cluster has any.

    Raises:
        ConfigurationError: Ray is not installed, or there is no cluster.
        KeyboardInterrupt: after every process has kept what it has.
    """
    if not wanted:
        return []
    with _cluster(address) as ray, progress(total=len(wanted), desc="evaluating", unit=" bags") as bar:
        gpus = 1 if gpu and ray.cluster_resources().get("GPU", 0) >= 1 else 0
        remote = ray.remote(num_cpus=1, num_gpus=gpus)(_evaluate)
        waiting, running, results = list(wanted), dict[Any, BagTask](), dict[str, BagResult]()
        try:
            while waiting or running:
                while waiting and (jobs is None or len(running) < jobs):
                    task = waiting.pop(0)
                    running[remote.remote(task.arguments, os.getcwd())] = task
                for ended in ray.wait(list(running), timeout=POLL)[0]:
                    task = running.pop(ended)
                    results[task.name] = _result(ray, task, ended)
                    bar.update()
        except KeyboardInterrupt:
            for reference in running:
                ray.cancel(reference)
            ray.wait(list(running), num_returns=len(running), timeout=2 * PATIENCE)
            raise
    return [results[task.name] for task in wanted]


def _evaluate(arguments: Sequence[str], folder: str) -> tuple[int, str]:
    """On a machine of the cluster: a bag's evaluation, its exit status and what it said."""
    import time

    with TemporaryDirectory() as temporary:
        log = Path(temporary, "log")
        process = start(arguments, log, dict(os.environ), Path(folder))
        try:
            while process.poll() is None:
                time.sleep(POLL)
        except KeyboardInterrupt:  # ray.cancel
            interrupt([process])
        return process.returncode, log.read_text(encoding="utf-8", errors="replace")


def _result(ray: Any, task: BagTask, ended: Any) -> BagResult:
    try:
        status, said = ray.get(ended)
    except (ray.exceptions.RayError, OSError) as error:  # the machine is lost, or lacks the package or the folder
        return BagResult(task, str(error).strip().splitlines()[-1])
    if status == 0 and not is_evaluation(task.out):
        return BagResult(task, f"{task.out} is not here: the cluster's machines must write to the same folder")
    task.log.parent.mkdir(parents=True, exist_ok=True)
    task.log.write_text(said, encoding="utf-8")
    return result(task, status)


@contextmanager
def _cluster(address: str) -> Iterator[Any]:
    """Ray, connected until the block ends."""
    try:
        import ray
    except ImportError:
        raise ConfigurationError("--ray needs Ray, which is not installed: pip install ray") from None
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # a cluster started here tells nobody
    only_here: dict[str, Any] = {"include_dashboard": False} if address == LOCAL else {}
    try:
        ray.init(address=address, log_to_driver=False, logging_level=logging.WARNING, **only_here)
    except (ConnectionError, ValueError, RuntimeError) as error:
        raise ConfigurationError(f"there is no Ray cluster at {address!r}: {error}") from error
    try:
        yield ray
    finally:
        ray.shutdown()
