"""The colcon workspace: both install modes hold messages and Python in one package, and all that `ros2 run` needs."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
VENV = Path(sys.prefix)
CHECK = """
from pathlib import Path
import alpamayo_ros.msg, alpamayo_ros.srv
import alpamayo_ros.ros.node as node
from rclpy.type_support import check_for_type_support
check_for_type_support(alpamayo_ros.msg.InferenceStatus)
print(Path(node.__file__))
print(Path(alpamayo_ros.msg.__file__))
"""


def environment(**more: str) -> dict[str, str]:
    return {
        **{name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "LD_LIBRARY_PATH")},
        "PATH": f"{VENV / 'bin'}:{os.environ['PATH']}",
        **more,
    }


def test_without_a_sourced_ros_2_it_says_that_it_needs_one(tmp_path):
    cmake = shutil.which("cmake", path=f"{VENV / 'bin'}:{os.environ['PATH']}")
    if cmake is None:
        pytest.skip("needs cmake: make setup")
    bare = {"PATH": "/usr/bin:/bin"}  # not the virtual environment's, beside which CMake would find its packages
    shutil.copy(ROOT / "CMakeLists.txt", tmp_path)
    command = [cmake, "-S", tmp_path, "-B", tmp_path / "build"]
    configured = subprocess.run(command, env=bare, capture_output=True, text=True, check=False)
    assert configured.returncode != 0
    assert "this needs a sourced ROS 2: source /opt/ros" in configured.stderr


@pytest.mark.slow
@pytest.mark.timeout(600)  # a minute when nothing else runs
@pytest.mark.parametrize("mode", [(), ("--symlink-install",)], ids=["copied", "symlinked"])
def test_colcon_builds_and_installs_messages_python_launch_and_configuration(mode, tmp_path):
    if not (VENV / "bin" / "colcon").exists() or not (VENV / "share" / "ament_cmake").exists():
        pytest.skip("needs colcon and the ament packages in the virtual environment: make setup")
    source = tmp_path / "src" / "alpamayo_ros"  # a copy: CMake takes no include folders inside the source, as .venv is
    for name in ("alpamayo_ros", "config", "launch", "msg", "srv", "scripts"):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("CMakeLists.txt", "package.xml"):
        shutil.copy(ROOT / name, source / name)
    built = subprocess.run(
        [VENV / "bin" / "colcon", "build", *mode,
         "--cmake-args", f"-DPython3_EXECUTABLE={sys.executable}", "-DBUILD_TESTING=OFF"],
        cwd=tmp_path, capture_output=True, text=True, check=False,
        env=environment(AMENT_PREFIX_PATH=str(VENV), CMAKE_PREFIX_PATH=str(VENV)),
    )  # fmt: skip
    assert built.returncode == 0, built.stdout + built.stderr

    install = tmp_path / "install" / "alpamayo_ros"
    (packages,) = install.glob("l*/python*/*-packages")
    run = subprocess.run(
        [sys.executable, "-c", CHECK], cwd=tmp_path, capture_output=True, text=True, check=False,
        env=environment(
            AMENT_PREFIX_PATH=f"{install}:{VENV}",
            PYTHONPATH=str(packages),
            LD_LIBRARY_PATH=f"{install / 'lib'}:{os.environ.get('LD_LIBRARY_PATH', '')}",
        ),
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    assert all(Path(line).is_relative_to(install) for line in run.stdout.split()), run.stdout

    for executable in ("alpamayo_node", "evaluate_live"):
        assert os.access(install / "lib" / "alpamayo_ros" / executable, os.X_OK)
    share = install / "share" / "alpamayo_ros"
    assert (share / "launch" / "alpamayo.launch.py").exists()
    assert {file.name for file in (share / "config").iterdir()} >= {
        "front_only.yaml", "kitti_stereo.yaml", "nuscenes_6cam.yaml", "physical_ai_4cam.yaml"
    }  # fmt: skip
    assert (share / "package.xml").exists()
