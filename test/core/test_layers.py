"""Each layer imports only what stands above it; core is numpy alone."""

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "alpamayo_ros"
LAYERS = ["core", "sensors", "model", "engine", "ros", "evaluation", "sim", "training", "tools"]
FORBIDDEN = {
    "core": {"torch", "cv2", "rclpy", "yaml", "rosbags", "transformers", "matplotlib"},
    "sensors": {"torch", "rclpy", "transformers"},
    "model": {"rclpy", "cv2"},
    "engine": {"rclpy"},
    "evaluation": {"rclpy"},
    "sim": {"rclpy", "torch"},
}
MESSAGE_PACKAGES = {"std_msgs", "sensor_msgs", "nav_msgs", "geometry_msgs", "diagnostic_msgs", "visualization_msgs"}
# rclpy and messages may also be imported inside functions of command-line programs that talk to a node
MAY_USE_ROS = {"ros", "tools"}

SOURCES = sorted(PACKAGE.glob("*/**/*.py"))


def imported_modules(path: Path) -> set[str]:
    modules: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            modules |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module is not None and node.level == 0:
            modules |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return modules


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_only_from_layers_above(path: Path) -> None:
    layer = path.relative_to(PACKAGE).parts[0]
    modules = imported_modules(path)
    imported = {module.split(".")[1] for module in modules if module.startswith("alpamayo_ros.")} & set(LAYERS)
    lower = {each for each in imported if LAYERS.index(each) > LAYERS.index(layer)}
    assert not lower, f"{layer} imports from {lower}, which stand below it"
    # evaluation and sim use the core and the engine exactly as the node does, without the node
    if layer in {"evaluation", "sim"}:
        assert "ros" not in imported
    # training stays apart from the inference code that it trains for
    if layer == "training":
        assert imported <= {"core", "model", "sim", "training"}
    if layer not in {"training", "tools"}:
        assert "training" not in imported
    roots = {module.split(".")[0] for module in modules}
    assert not roots & FORBIDDEN.get(layer, set())
    if layer not in MAY_USE_ROS:
        assert not roots & (MESSAGE_PACKAGES | {"rclpy"})
        assert not any(module.startswith(("alpamayo_ros.msg", "alpamayo_ros.srv")) for module in modules)


def test_core_imports_nothing_but_numpy_and_the_standard_library() -> None:
    import sys

    allowed = set(sys.stdlib_module_names) | {"numpy", "alpamayo_ros"}
    for path in (PACKAGE / "core").glob("*.py"):
        roots = {module.split(".")[0] for module in imported_modules(path)}
        assert roots <= allowed, f"{path.name} imports {roots - allowed}"


def test_nothing_uses_what_is_known_to_fail() -> None:
    """Python's message_filters goes silent after a looped bag, and its diagnostic_updater ignores simulated time."""
    for path in SOURCES:
        roots = {module.split(".")[0] for module in imported_modules(path)}
        assert not roots & {"message_filters", "diagnostic_updater", "cv_bridge"}, path
