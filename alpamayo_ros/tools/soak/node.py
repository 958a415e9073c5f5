"""The node as a process, with a leak planted in it if that is asked for: a soak test has to find that."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from alpamayo_ros.core.settings import Settings
from alpamayo_ros.core.types import Observation, Prediction, SamplingOptions
from alpamayo_ros.engine.base import Engine
from alpamayo_ros.engine.factory import engine_by_settings
from alpamayo_ros.ros.process import run


class LeakyEngine:
    """An engine that keeps some bytes of every tick.

    Args:
        engine: does the work.
        leak: bytes per tick.
    """

    def __init__(self, engine: Engine, leak: int) -> None:
        self.info, self.prepares_alongside = engine.info, engine.prepares_alongside
        self.warm_up, self.prepare, self.ask = engine.warm_up, engine.prepare, engine.ask
        self.predict_batch, self.close = engine.predict_batch, engine.close
        self._engine = engine
        self._leak = leak
        self._kept: list[bytearray] = []

    def predict(self, observation: Observation, options: SamplingOptions) -> Prediction:
        """As the engine does, and a little more."""
        self._kept.append(bytearray(b"\xff" * self._leak))
        return self._engine.predict(observation, options)


def main(arguments: Sequence[str]) -> int:
    """Run the node: arguments are the bytes that it leaks per tick, and then the node's own."""
    leak, own = int(arguments[0]), list(arguments[1:])

    def make_engine(settings: Settings) -> Engine:
        engine = engine_by_settings(settings)
        return LeakyEngine(engine, leak) if leak else engine

    return run(["soak_node", *own], make_engine)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
