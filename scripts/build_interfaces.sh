#!/usr/bin/env bash
# Builds this package's messages (and those of others that PyPI lacks and tests need) against the ROS 2 wheels of a venv, into that venv.
set -euo pipefail
venv=$(realpath "${1:?usage: build_interfaces.sh VENV}")
root=$(realpath "$(dirname "$0")/..")
log=$venv/build_interfaces.log
exec 9>"$venv/build_interfaces.lock" && flock 9  # of two makes at once the second one waits
export PATH=$venv/bin:$PATH AMENT_PREFIX_PATH=$venv CMAKE_PREFIX_PATH=$venv
build() {
  local source=$1 build=$venv/build/$2
  cmake -S "$source" -B "$build" -DCMAKE_INSTALL_PREFIX="$venv" -DPython3_EXECUTABLE="$venv/bin/python" \
    -DAMENT_CMAKE_SYMLINK_INSTALL=ON -DBUILD_TESTING=OFF -DINTERFACES_ONLY=ON &&
    cmake --build "$build" --parallel "$(nproc)" &&
    (cd "$build" && cmake --install .)  # symlink mode leaves a manifest where it runs
}
if ! {
  build "$root/test/interfaces/tf2_msgs" tf2_msgs &&
    build "$root/test/interfaces/autoware_planning_msgs" autoware_planning_msgs &&
    build "$root" alpamayo_ros
} >"$log" 2>&1; then
  tail -n 40 "$log" >&2
  echo "error: building the ROS messages failed; the whole log is $log" >&2
  exit 1
fi
# The sources are imported from where they are, from every folder.
"$venv/bin/python" - "$root" <<'PY'
import sys, sysconfig
from pathlib import Path
Path(sysconfig.get_paths()["purelib"], "alpamayo_ros_source.pth").write_text(sys.argv[1] + "\n")
PY
