"""Point the CMake files of the ROS 2 wheels at the interpreter that they were installed for.

The wheels on PyPI export include folders of the container that built them (below /opt/python); a package that links
against one of their messages would otherwise fail to configure. Run it with the venv's own Python; it is idempotent.
"""

import re
import sys
import sysconfig
from pathlib import Path

import numpy

BUILD_CONTAINER_PYTHON = re.compile(r"/opt/python/[^/;\"]+/include/python[0-9.]+")
BUILD_CONTAINER_NUMPY = re.compile(r"/opt/python/[^;\"]+/site-packages/numpy/_?core/include")


def main() -> None:
    python_include = sysconfig.get_paths()["include"]
    numpy_include = numpy.get_include()
    changed = 0
    for path in Path(sys.prefix, "share").glob("**/*.cmake"):
        before = path.read_text()
        after = BUILD_CONTAINER_NUMPY.sub(numpy_include, BUILD_CONTAINER_PYTHON.sub(python_include, before))
        if after != before:
            path.write_text(after)
            changed += 1
    print(f"adapted {changed} CMake files of the ROS packages in {Path(sys.prefix).name} to its Python")


if __name__ == "__main__":
    main()
