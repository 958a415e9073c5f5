"""The node, in a process of its own, gives over DDS what the offline evaluator gives for the same bag."""

from pathlib import Path

import pytest

from alpamayo_ros.tools import evaluate_bag, make_bag, make_checkpoint
from alpamayo_ros.tools.live_paths import affordable_rate, compare_with_bag, drive_node

ROOT = Path(__file__).parents[2]
KITTI = ROOT.parent / "shared" / "data" / "kitti06_stereo"
RIG = ROOT / "config" / "kitti_stereo.yaml"
STRIDE = 0.5  # s

needs_kitti = pytest.mark.skipif(not KITTI.is_dir(), reason="the recorded KITTI drive is not beside the project")


@needs_kitti
@pytest.mark.timeout(280)
def test_a_recorded_drive_gives_the_same_paths_live_and_offline(tmp_path: Path, ros_domain: int) -> None:
    bag, checkpoint, report = tmp_path / "kitti06", tmp_path / "tiny", tmp_path / "report"
    cameras = [f"front_wide={KITTI / 'image_l'}", f"front_tele={KITTI / 'image_r'}"]
    recording = ["--times", KITTI / "times.txt", "--poses", KITTI / "poses_full_06.txt", "--pose-format", "kitti"]
    images = [word for camera in cameras for word in ("--camera", camera)]
    assert make_bag.main(["images", *images, *map(str, recording), "--out", str(bag)]) == 0
    assert make_checkpoint.main(["--preset", "tiny", "--seed", "0", "--out", str(checkpoint)]) == 0
    evaluation = ["--config", RIG, "--checkpoint", checkpoint, "--out", report, "--stride", STRIDE, "--samples", 3]
    assert evaluate_bag.main([str(bag), *map(str, evaluation)]) == 0

    # so slow that a busy machine drops no tick
    play_rate = min(0.25, affordable_rate(report / "report.json", STRIDE))
    log_file = tmp_path / "node.log"
    paths = drive_node(bag, RIG, checkpoint, rate_hz=1 / STRIDE, samples=3, play_rate=play_rate, log=log_file)

    log = log_file.read_text()
    comparison = compare_with_bag(paths, report / "result_bag")
    assert comparison.missing_live == (), f"{comparison.missing_live} of the offline ticks are missing\n{log}"
    assert comparison.difference < 1e-6
