"""YAML as ROS reads it in parameter files and in `-p NAME:=VALUE`: rcl_yaml_param_parser, parse.c.

It differs from YAML 1.1, which PyYAML implements, in its scalars: null and dates are texts, y and n are booleans, 1e3
is a number. It has no aliases. ROS merges names that are given twice, where the last value wins; here they are errors,
since a camera that was copied and not renamed would be lost.

The node and the offline programs read files by this; it knows no layer of the package, and ROS only by what it copies.
"""

from __future__ import annotations

import re
from collections.abc import Hashable
from typing import Any

import yaml

NUMBER = list("-+.0123456789")


class _Loader(yaml.SafeLoader):
    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012  PyYAML wants it so
    bool_values = {**yaml.SafeLoader.bool_values, "y": True, "n": False}  # noqa: RUF012

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            event = self.peek_event()
            raise yaml.constructor.ConstructorError(
                None, None, f"*{event.anchor} is an alias, and ROS reads none; write the values again", event.start_mark
            )
        return super().compose_node(parent, index)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.value in seen:
                raise yaml.constructor.ConstructorError(
                    "in the names",
                    node.start_mark,
                    f"{key.value} is given twice; expected each name once",
                    key.start_mark,
                )
            seen.add(str(key.value))
        return super().construct_mapping(node, deep)


for _tag, _pattern, _first in (
    ("bool", "y|Y|yes|Yes|YES|n|N|no|No|NO|true|True|TRUE|false|False|FALSE|on|On|ON|off|Off|OFF", list("yYnNtTfFoO")),
    ("int", "[-+]?(0x[0-9a-fA-F]+|0[0-7]*|[1-9][0-9]*)", NUMBER),
    (
        "float",
        r"[-+]?([0-9]+\.[0-9]*|\.[0-9]+|[0-9]+(?=[eE]))([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)",
        NUMBER,
    ),
    ("null", "", [""]),
):
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(f"({_pattern})$"), _first)


def load_yaml(text: str) -> Any:
    """What ROS would read from the text.

    Raises:
        yaml.YAMLError: it can't be read; says where and why.
    """
    try:
        return _Loader(text).get_single_data()
    except RecursionError:
        raise yaml.YAMLError("its values are nested too deeply") from None
