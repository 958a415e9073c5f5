"""Starts the Alpamayo node.

ros2 launch alpamayo_ros alpamayo.launch.py params_file:=/path/to/rig.yaml checkpoint:=/path/to/checkpoint
"""

from __future__ import annotations

from datetime import datetime
from functools import partial
from pathlib import Path

from ament_index_python.packages import get_package_share_directory
from launch.actions import DeclareLaunchArgument, OpaqueFunction, SetEnvironmentVariable
from launch.conditions import IfCondition
from launch.launch_context import LaunchContext
from launch.substitutions import LaunchConfiguration
from launch_ros.actions import Node
from launch_ros.parameter_descriptions import ParameterValue

from launch import LaunchDescription


def generate_launch_description() -> LaunchDescription:
    """Every argument with its description: ros2 launch alpamayo_ros alpamayo.launch.py --show-args."""
    config = Path(get_package_share_directory("alpamayo_ros"), "config")
    return LaunchDescription(
        [
            DeclareLaunchArgument(
                "params_file",
                default_value=str(config / "physical_ai_4cam.yaml"),
                description=f"Parameter file of the rig; {config} holds examples",
            ),
            DeclareLaunchArgument(
                "checkpoint",
                default_value="",
                description="Folder of the checkpoint, or mini for the one that comes along; empty: as in params_file",
            ),
            DeclareLaunchArgument(
                "engine",
                default_value="",
                choices=["", "transformers", "native", "vllm", "null"],
                description="Engine; empty: as in params_file; null needs no checkpoint and drives straight on",
            ),
            DeclareLaunchArgument(
                "use_sim_time", default_value="false", choices=["true", "false"], description="Follow /clock"
            ),
            DeclareLaunchArgument("namespace", default_value="", description="Namespace of the node"),
            DeclareLaunchArgument("node_name", default_value="alpamayo", description="Name of the node"),
            DeclareLaunchArgument(
                "autostart",
                default_value="true",
                choices=["true", "false"],
                description="Configure and activate at once; false under a lifecycle manager",
            ),
            DeclareLaunchArgument("log_level", default_value="info", description="debug, info, warn, error or fatal"),
            DeclareLaunchArgument("odometry", default_value="", description="Odometry topic; empty: as in params_file"),
            DeclareLaunchArgument(
                "rviz", default_value="false", choices=["true", "false"], description="Start RViz beside the node"
            ),
            DeclareLaunchArgument(
                "rviz_config",
                default_value=str(config / "alpamayo.rviz"),
                description="RViz's configuration; its topics are those of a node called /alpamayo",
            ),
            DeclareLaunchArgument(
                "evaluate",
                default_value="false",
                choices=["true", "false"],
                description="Score the node beside it, against the path that the vehicle then drives",
            ),
            DeclareLaunchArgument(
                "evaluation_out",
                default_value=f"alpamayo_evaluation_{datetime.now():%Y%m%d_%H%M%S}",
                description="Folder for the evaluation's report, written when the launch ends; must not exist yet",
            ),
            DeclareLaunchArgument(
                "fastdds_transports",
                default_value="LARGE_DATA",
                description="FASTDDS_BUILTIN_TRANSPORTS; set the same on the cameras' side",
            ),
            # Fast DDS loses large messages with its default transports.
            SetEnvironmentVariable("FASTDDS_BUILTIN_TRANSPORTS", LaunchConfiguration("fastdds_transports")),
            OpaqueFunction(function=_node),
            OpaqueFunction(function=_evaluation, condition=IfCondition(LaunchConfiguration("evaluate"))),
            OpaqueFunction(function=_rviz, condition=IfCondition(LaunchConfiguration("rviz"))),
        ]
    )


def _node(context: LaunchContext) -> list[Node]:
    """A function, since an argument left empty must not override the parameter file."""
    argument = partial(_argument, context)
    overrides: dict[str, object] = {
        "use_sim_time": argument("use_sim_time") == "true",
        "autostart": argument("autostart") == "true",
    }
    # a checkpoint called 1.5 would become a number
    for parameter, name in (
        ("engine.checkpoint", "checkpoint"),  # the node knows ~ itself
        ("engine.kind", "engine"),
        ("odometry.topic", "odometry"),
    ):
        if argument(name):
            overrides[parameter] = ParameterValue(argument(name), value_type=str)
    return [
        Node(
            package="alpamayo_ros",
            executable="alpamayo_node",
            name=argument("node_name"),
            namespace=argument("namespace"),
            output="screen",
            emulate_tty=True,
            parameters=[_path(context, "params_file"), overrides],
            arguments=["--ros-args", "--log-level", argument("log_level")],
        )
    ]


def _evaluation(context: LaunchContext) -> list[Node]:
    """A function for the same reason. It has a minute for its report before launch ends it."""
    argument = partial(_argument, context)
    name = f"/{argument('namespace').strip('/')}/{argument('node_name')}".replace("//", "/")
    words = ["--config", _path(context, "params_file"), "--out", _path(context, "evaluation_out"), "--node", name]
    if argument("odometry"):
        words += ["--odometry-topic", argument("odometry")]
    return [
        Node(
            package="alpamayo_ros",
            executable="evaluate_live",
            name="alpamayo_evaluation",
            output="screen",
            emulate_tty=True,
            arguments=words,
            sigterm_timeout="30",
            sigkill_timeout="30",
        )
    ]


def _rviz(context: LaunchContext) -> list[Node]:
    return [
        Node(
            package="rviz2",
            executable="rviz2",
            name="alpamayo_rviz",
            arguments=["-d", _path(context, "rviz_config")],
            parameters=[{"use_sim_time": _argument(context, "use_sim_time") == "true"}],
        )
    ]


def _path(context: LaunchContext, name: str) -> str:
    """With ~ expanded, which a shell doesn't behind name:=."""
    return str(Path(_argument(context, name)).expanduser())


def _argument(context: LaunchContext, name: str) -> str:
    return str(LaunchConfiguration(name).perform(context))
