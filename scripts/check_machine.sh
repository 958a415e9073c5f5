#!/usr/bin/env bash
# Says what is missing on this machine before anything is installed.
set -euo pipefail
python=${1:?usage: check_machine.sh PYTHON}
fail() { echo "error: $*" >&2; exit 1; }
[ "$(uname -s)-$(uname -m)" = Linux-x86_64 ] || fail "ROS 2 from PyPI exists for x86-64 Linux only; this is $(uname -s) on $(uname -m). Install ROS 2 and use colcon instead (docs/installation.md)."
command -v "$python" >/dev/null || fail "no '$python' here; install Python 3.10 to 3.13, or name one: make PYTHON=/path/to/python3 ..."
"$python" -c 'import sys; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 13))' || fail "$("$python" --version) can't be used: ROS 2 from PyPI needs Python 3.10 to 3.13; name another: make PYTHON=python3.11 ..."
"$python" -c 'import venv, ensurepip' 2>/dev/null || fail "'$python' has no venv module; on Debian and Ubuntu: apt install python3-venv"
"$python" -c 'import pathlib, sys, sysconfig; sys.exit(not pathlib.Path(sysconfig.get_paths()["include"], "Python.h").exists())' || fail "'$python' has no C headers (Python.h); on Debian and Ubuntu: apt install python3-dev"
command -v c++ >/dev/null || command -v g++ >/dev/null || fail "no C++ compiler; on Debian and Ubuntu: apt install g++"
