"""Starts the Alpamayo node.

ros2 launch alpamayo_ros alpamayo.launch.py params_file:=/path/to/rig.yaml checkpoint:=/path/to/checkpoint
"""

from __future__ import annotations

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
                "checkpoint", default_value="", description="Folder of the checkpoint; empty: as in params_file"
            ),
            DeclareLaunchArgument(
                "engine",
                default_value="",
                choices=["", "transformers", "vllm", "null"],
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
                "fastdds_transports",
                default_value="LARGE_DATA",
                description="FASTDDS_BUILTIN_TRANSPORTS; set the same on the cameras' side",
            ),
            # Fast DDS loses large messages with its default transports.
            SetEnvironmentVariable("FASTDDS_BUILTIN_TRANSPORTS", LaunchConfiguration("fastdds_transports")),
            OpaqueFunction(function=_node),
            Node(
                package="rviz2",
                executable="rviz2",
                name="alpamayo_rviz",
                arguments=["-d", LaunchConfiguration("rviz_config")],
                parameters=[{"use_sim_time": ParameterValue(LaunchConfiguration("use_sim_time"), value_type=bool)}],
                condition=IfCondition(LaunchConfiguration("rviz")),
            ),
        ]
    )


def _node(context: LaunchContext) -> list[Node]:
    """A function, since an argument left empty must not override the parameter file."""

    def argument(name: str) -> str:
        return str(LaunchConfiguration(name).perform(context))

    overrides: dict[str, object] = {
        "use_sim_time": argument("use_sim_time") == "true",
        "autostart": argument("autostart") == "true",
    }
    # a checkpoint called 1.5 would become a number
    for parameter, name in (
        ("engine.checkpoint", "checkpoint"),
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
            parameters=[argument("params_file"), overrides],
            arguments=["--ros-args", "--log-level", argument("log_level")],
        )
    ]
