"""The node's services. An answer never raises: what went wrong is in its message."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import contextmanager
from typing import Any

from rclpy.callback_groups import MutuallyExclusiveCallbackGroup
from std_srvs.srv import SetBool, Trigger

from alpamayo_ros.core.types import SkipReason
from alpamayo_ros.ros.configured import Configured
from alpamayo_ros.ros.convert import time_message
from alpamayo_ros.srv import Ask

ASK_TIMEOUT = 60.0  # s
SAVE_TIMEOUT = 30.0  # s


class Services:
    """Serves them in every lifecycle state, in callback groups of their own: nothing may hold up who disables the node.

    Args:
        node: the lifecycle node, with its `state`.
        configured: gives what there is just now; None while the node is unconfigured.
        publish_nothing: tells consumers that there is no trajectory, and why.
    """

    def __init__(
        self, node: Any, configured: Callable[[], Configured | None], publish_nothing: Callable[[SkipReason], None]
    ) -> None:
        self._node = node
        self._configured = configured
        self._publish_nothing = publish_nothing
        at_once, answering, saving = (MutuallyExclusiveCallbackGroup() for _ in range(3))
        for kind, name, answer, group in (
            (Ask, "~/ask", self._ask, answering),
            (SetBool, "~/set_enabled", self._set_enabled, at_once),
            (Trigger, "~/reset", self._reset, at_once),
            (Trigger, "~/save_ticks", self._save_ticks, saving),
        ):
            node.create_service(kind, name, answer, callback_group=group)

    def _reset(self, request: Trigger.Request, response: Trigger.Response) -> Trigger.Response:
        configured = self._configured()
        if configured is None:
            response.message = f"nothing to reset: the node is {self._node.state}"
            return response
        configured.drive.reset("asked for")
        response.success = True
        response.message = "all inputs forgotten"
        return response

    def _set_enabled(self, request: SetBool.Request, response: SetBool.Response) -> SetBool.Response:
        configured = self._configured()
        if configured is None:
            response.message = f"can't be enabled or disabled: the node is {self._node.state}"
            return response
        configured.drive.set_enabled(request.data)
        if not request.data:
            self._publish_nothing(SkipReason.DISABLED)
        response.success = True
        response.message = "enabled" if request.data else "disabled"
        self._node.get_logger().info(f"{response.message} by ~/set_enabled")
        return response

    def _save_ticks(self, request: Trigger.Request, response: Trigger.Response) -> Trigger.Response:
        configured = self._configured()
        if configured is None:
            response.message = f"no ticks to save: the node is {self._node.state}"
            return response
        with _success_of(response, f"not written within {SAVE_TIMEOUT:g} s"):
            response.message = str(configured.recorder.save().result(SAVE_TIMEOUT))
        return response

    def _ask(self, request: Ask.Request, response: Ask.Response) -> Ask.Response:
        configured = self._configured()
        if configured is None or not configured.drive.is_active:
            response.message = f"can't answer: the node is {self._node.state}"
            return response
        with _success_of(response, f"no answer within {ASK_TIMEOUT:g} s"):
            answer, t0_ns = configured.drive.ask(request.question)
            response.answer = answer.result(ASK_TIMEOUT)
            response.stamp = time_message(t0_ns)
        return response


@contextmanager
def _success_of(response: Any, late: str) -> Iterator[None]:
    """Success, unless the block raises: then the message says why, or `late` if it has waited in vain."""
    try:
        yield
    except FutureTimeoutError:
        response.message = late
    except Exception as error:
        response.message = str(error)
    else:
        response.success = True
