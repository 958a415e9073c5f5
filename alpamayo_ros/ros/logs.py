"""Log records of the layers that don't know ROS, into the node's log and so to /rosout."""

from __future__ import annotations

import logging

from rclpy.impl.rcutils_logger import RcutilsLogger


class RosLogHandler(logging.Handler):
    """Hands records of Python's logging to a ROS logger."""

    def __init__(self, logger: RcutilsLogger) -> None:
        super().__init__()
        self._logger = logger

    def emit(self, record: logging.LogRecord) -> None:
        """Log one record; errors carry their traceback."""
        text = self.format(record)
        # ROS refuses calls of different severity from one line, so each has its own
        if record.levelno >= logging.ERROR:
            self._logger.error(text)
        elif record.levelno >= logging.WARNING:
            self._logger.warning(text)
        elif record.levelno >= logging.INFO:
            self._logger.info(text)
        else:
            self._logger.debug(text)
