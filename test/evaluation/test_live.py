"""What a node publishes is scored as the offline evaluation scores the same ticks."""

from pathlib import Path
from typing import Any

import pytest
from drives import Motion, circle, record, rig, write_bag

from alpamayo_ros.core.settings import Settings
from alpamayo_ros.core.types import Skip, SkipReason
from alpamayo_ros.engine.null_engine import INFO, NullEngine
from alpamayo_ros.evaluation.bag import BagReader
from alpamayo_ros.evaluation.ground_truth import GroundTruth
from alpamayo_ros.evaluation.inputs import BagInputs
from alpamayo_ros.evaluation.live import LiveEvaluation
from alpamayo_ros.evaluation.live_report import Heard, LiveReport
from alpamayo_ros.evaluation.replay import Replay, Tick
from alpamayo_ros.evaluation.report import tick_record
from alpamayo_ros.evaluation.result_bag import OUTPUT, ResultBag
from alpamayo_ros.evaluation.scores import score

SECONDS = 14.0
CIRCLE = circle(8.0, 40.0)


def evaluate_both(
    folder: Path, settings: Settings, motion: Motion = CIRCLE
) -> tuple[list[Any], list[Any], LiveEvaluation]:
    """The records of a drive, offline, and from the messages that the node would have sent."""
    drive = write_bag(folder / "drive", record(motion, SECONDS))
    offline = []
    with BagReader(drive) as reader, ResultBag(folder / "results", settings, INFO) as results:
        inputs = BagInputs(reader, settings)
        timing = settings.timing
        truth = GroundTruth(
            inputs.recorded_poses(), max_jump=timing.max_odometry_jump, time_offset=settings.odometry.time_offset
        )
        for tick in Replay(inputs, settings, NullEngine()):
            results.write(tick)
            if tick.observation and tick.prediction and tick.chosen:
                future = truth.future(tick.observation.t0_ns)
                offline.append(tick_record(tick, score(tick.observation, tick.prediction, tick.chosen, future)))
    live, records = LiveEvaluation(settings), []
    takes = {"trajectory": live.add_trajectory, "candidates": live.add_candidates, "status": live.add_status}
    with BagReader(drive) as reader, BagReader(folder / "results") as results:
        sent = [(m.receive_ns, live.add_odometry, m.message) for m in reader.messages(["/odometry"])]
        for name, take in takes.items():
            sent += [(m.receive_ns, take, m.message) for m in results.messages([f"{OUTPUT}/{name}"])]
        for _, take, message in sorted(sent, key=lambda each: each[0]):
            take(message)
            records += [scored.record for scored in live.due()]
    complete = len(records)
    assert all(each["metrics"]["recorded_steps"] == 64 for each in records)
    records += [scored.record for scored in live.finish()]
    assert 0 < complete < len(records)
    records += live.skips
    return offline, records, live


def numbers(value: Any, path: str = "") -> dict[str, float | None]:
    if isinstance(value, dict):
        return {key: each for name in value for key, each in numbers(value[name], f"{path}/{name}").items()}
    return {path: value}


@pytest.mark.parametrize("frame", ["odom", "base_link"])
@pytest.mark.parametrize(("selection", "late"), [("medoid", 0.0), ("mean", 0.0), ("medoid", 0.03)])
def test_errors_are_equal_within_a_micrometre(tmp_path: Path, frame: str, selection: str, late: float) -> None:
    settings = rig(output_frame=frame, selection=selection, sampling__num_samples=3, odometry__time_offset=late)
    offline, records, live = evaluate_both(tmp_path, settings)
    live_by_t0 = {each["t0_ns"]: each for each in records if each["skip"] is None}
    assert sorted(live_by_t0) == [each["t0_ns"] for each in offline]
    assert live.incomplete == 0
    for each in offline:
        ours, theirs = numbers(live_by_t0[each["t0_ns"]]["metrics"]), numbers(each["metrics"])
        assert ours.keys() == theirs.keys()
        for name, expected in theirs.items():
            if not name.startswith(("/comfort", "/within_bounds")):
                assert ours[name] == (expected if isinstance(expected, str) else pytest.approx(expected, abs=1e-6)), (
                    name
                )


def test_what_the_node_takes_for_no_jump_is_none_in_the_truth(tmp_path: Path) -> None:
    settings = rig(max_odometry_jump=5.0)
    offline, records, _ = evaluate_both(tmp_path, settings, lambda t: (8.0 * t, 3.0 * (t >= 6.0), 0.0))
    live = [each for each in records if each["skip"] is None]
    assert [each["metrics"]["recorded_steps"] for each in live] == [
        each["metrics"]["recorded_steps"] for each in offline
    ]


def test_the_summary_has_what_only_a_running_node_knows(tmp_path: Path) -> None:
    _, records, live = evaluate_both(tmp_path, rig())
    summary = live.summary(records)
    ok = sum(each["skip"] is None for each in records)
    assert summary["ticks"]["ok"] == ok > 5
    assert summary["live"]["age_at_publication_s"]["n"] == ok
    assert summary["live"]["ticks_published"] == ok  # counted from the first status, which was a skip
    assert set(summary["skips"]) == {each["skip"] for each in records if each["skip"] is not None} > {"camera_gap"}
    assert summary["timings_ms"]["age_at_publication"]["n"] == ok


def test_a_tick_whose_messages_are_missing_is_counted_and_not_scored(tmp_path: Path) -> None:
    settings = rig()
    drive = write_bag(tmp_path / "drive", record(circle(8.0, 40.0), SECONDS))
    live = LiveEvaluation(settings)
    with BagReader(drive) as reader, ResultBag(tmp_path / "results", settings, INFO) as results:
        for tick in Replay(BagInputs(reader, settings), settings, NullEngine()):
            results.write(tick)
    with BagReader(tmp_path / "results") as results:
        (first, *_) = results.messages([f"{OUTPUT}/trajectory"])
    live.add_trajectory(first.message)
    with BagReader(drive) as reader:
        for message in reader.messages(["/odometry"]):
            live.add_odometry(message.message)
    assert list(live.due()) == []
    assert live.incomplete == 1


def test_odometry_that_is_no_pose_is_left_out(tmp_path: Path) -> None:
    live = LiveEvaluation(rig())
    with BagReader(write_bag(tmp_path / "drive", record(circle(8.0, 40.0), 0.1))) as reader:
        (message, *_) = reader.messages(["/odometry"])
    message.message.pose.pose.position.x = float("nan")
    live.add_odometry(message.message)
    assert list(live.due()) == list(live.finish()) == []


def test_a_bag_that_is_played_again_is_scored_again(tmp_path: Path) -> None:
    settings = rig()
    drive = write_bag(tmp_path / "drive", record(circle(8.0, 40.0), SECONDS))
    live, scored = LiveEvaluation(settings), []
    with BagReader(drive) as reader, ResultBag(tmp_path / "results", settings, INFO) as results:
        for tick in Replay(BagInputs(reader, settings), settings, NullEngine()):
            results.write(tick)
    takes = {"trajectory": live.add_trajectory, "candidates": live.add_candidates, "status": live.add_status}
    for _ in range(2):
        with BagReader(drive) as reader, BagReader(tmp_path / "results") as results:
            sent = [(m.receive_ns, live.add_odometry, m.message) for m in reader.messages(["/odometry"])]
            for name, take in takes.items():
                sent += [(m.receive_ns, take, m.message) for m in results.messages([f"{OUTPUT}/{name}"])]
        for _, take, message in sorted(sent, key=lambda each: each[0]):
            take(message)
            scored += [each.record["t0_ns"] for each in live.due()]
    assert len(scored) == 2 * len(set(scored)) > 4


def test_a_skip_reason_of_a_newer_node_is_counted_under_its_name(tmp_path: Path) -> None:
    settings = rig()
    live = LiveEvaluation(settings)
    with ResultBag(tmp_path / "results", settings, INFO) as results:
        for t0_ns, reason in ((5, SkipReason.ODOMETRY_GAP), (6, SkipReason.CAMERA_GAP), (7, SkipReason.CAMERA_GAP)):
            results.write(Tick(t0_ns, skip=Skip(reason, t0_ns)))
    with BagReader(tmp_path / "results") as reader:
        for status in reader.messages([f"{OUTPUT}/status"]):
            if status.message.skip_reason == "camera_gap":
                status.message.skip_reason = "camera_dirty"
            live.add_status(status.message)
    report = LiveReport(settings, "/alpamayo").write(tmp_path / "out", live, Heard())
    assert report["skips"] == {"camera_dirty": 2, "odometry_gap": 1}
    assert "camera_dirty" in (tmp_path / "out" / "report.html").read_text()


def test_times_count_from_the_first_odometry(tmp_path: Path) -> None:
    """A node in simulated time has told of a skip at 0, before the clock began."""
    settings = rig()
    live = LiveEvaluation(settings)
    with BagReader(write_bag(tmp_path / "drive", record(circle(8.0, 40.0), SECONDS))) as reader:
        tick = Tick(0, skip=Skip(SkipReason.WAITING_FOR_CAMERA, 0))
        with ResultBag(tmp_path / "results", settings, INFO) as results:
            results.write(tick)
        with BagReader(tmp_path / "results") as results_reader:
            for message in results_reader.messages([f"{OUTPUT}/status"]):
                live.add_status(message.message)
        for message in reader.messages(["/odometry"]):
            live.add_odometry(message.message)
        report = LiveReport(settings, "/alpamayo").write(tmp_path / "out", live, Heard())
        assert report["bag"]["start_ns"] == reader.start_ns
    assert report["bag"]["duration_s"] == 0.0
    assert report["skips"] == {"waiting_for_camera": 1}
    assert (tmp_path / "out" / "report.html").exists()
