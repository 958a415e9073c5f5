"""Starts the engine's server in the interpreter that runs this file, which need not have this package installed.

Run by path, never imported by the node: `PYTHON bootstrap.py DESCRIPTOR PARENT`, a socket's descriptor and the process
id of the node. Until the server is imported it uses the standard library alone, and no syntax that an old Python lacks,
so that whatever is wrong with the interpreter is said in words.
"""

import os
import sys

if __name__ == "__main__" and os.path.realpath(sys.path[0]) == os.path.dirname(os.path.realpath(__file__)):
    del sys.path[0]  # its files are no modules of that name

import ctypes
import importlib.util
import json
import signal
from multiprocessing.connection import Connection

OLDEST = (3, 10)
PR_SET_PDEATHSIG = 1
PROTOCOL = 2  # wire.VERSION, which can't be imported yet


def use_own_package() -> None:
    """Make `alpamayo_ros` the package that this file belongs to: node and engine run the same code."""
    folder = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    spec = importlib.util.spec_from_file_location(
        "alpamayo_ros", os.path.join(folder, "__init__.py"), submodule_search_locations=[folder]
    )
    assert spec is not None
    assert spec.loader is not None
    package = importlib.util.module_from_spec(spec)
    sys.modules["alpamayo_ros"] = package
    spec.loader.exec_module(package)


def die_with(parent: int) -> None:
    """Be killed when the node ends, however it ends."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it has ended already
        os._exit(0)


def main() -> None:
    """Say hello, import the server and serve."""
    descriptor, parent = int(sys.argv[1]), int(sys.argv[2])
    die_with(parent)
    connection = Connection(descriptor)
    _say(connection, "Hello", {"python": sys.version.split()[0]})
    try:
        if sys.version_info < OLDEST:
            raise ImportError(f"it has to be Python {OLDEST[0]}.{OLDEST[1]} or newer")
        use_own_package()
        from alpamayo_ros.engine.process.server import serve
    except Exception as error:
        text = f"{sys.executable} (Python {sys.version.split()[0]}) can't run the engine: {error}"
        if isinstance(error, ImportError) and error.name:
            text += f"; install what is missing there: {sys.executable} -m pip install ..."
        _say(connection, "Failure", {"error": "EngineError", "text": text})
        os._exit(1)
    serve(connection)


def _say(connection: Connection, name: str, fields: "dict[str, str]") -> None:
    """A message, in the form that wire.py gives it."""
    connection.send_bytes(json.dumps([PROTOCOL, {name: fields}]).encode() + b"\n")


if __name__ == "__main__":
    main()
elif __name__ == "__mp_main__":  # a process that the engine started
    use_own_package()
