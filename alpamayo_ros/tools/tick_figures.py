"""What a node's status messages say of its ticks, as benchmarks report it."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from alpamayo_ros.tools.figures import distribution, report

OWN_STAGES = ("assemble", "publish")
WAIT = "wait"


@dataclass
class Observed:
    """What the node's status messages said."""

    stages: dict[str, list[float]] = field(default_factory=dict)  # ms
    ages: list[float] = field(default_factory=list)  # ms
    last_t0: int = 0
    state: str = ""
    ticks: int = 0
    dropped: tuple[int, int] = (0, 0)  # before counting, and now
    skipped: dict[str, int] = field(default_factory=dict)  # since the node was configured

    def take(self, status: Any, counting: bool) -> bool:
        """Note a status message; whether it was a counted tick. The 1 Hz repetitions of a tick are passed over."""
        self.state = status.lifecycle_state
        self.skipped = dict(zip(status.skip_reasons, status.skip_counts, strict=True))
        self.dropped = (self.dropped[0] if counting else status.ticks_dropped, status.ticks_dropped)
        t0 = status.header.stamp.sec * 1_000_000_000 + status.header.stamp.nanosec
        if not status.ok or t0 == self.last_t0:
            return False
        self.last_t0 = t0
        if not counting:
            return False
        self.ticks += 1
        self.ages.append(status.age_at_publication * 1e3)
        for name, ms in zip(status.stages, status.stage_ms, strict=True):
            self.stages.setdefault(name, []).append(ms)
        return True

    def anew(self) -> Observed:
        """The same node, with no tick counted yet."""
        return Observed(last_t0=self.last_t0, state=self.state, dropped=(self.dropped[1],) * 2, skipped=self.skipped)

    def report(self, seconds: float) -> None:
        """Print what was counted in so many seconds, at least one tick."""
        report("node: last needed message in to engine call", "ms", **distribution(self.stages["assemble"]))
        report("node: engine result to message out", "ms", **distribution(self.stages["publish"]))
        overhead = [a + b for a, b in zip(*(self.stages[name] for name in OWN_STAGES), strict=True)]
        report("node: overhead per tick", "ms", **distribution(overhead))
        report("node: wait for the engine to end its last tick", "ms", **distribution(self.stages[WAIT]))
        for name, values in self.stages.items():
            if name not in (*OWN_STAGES, WAIT):
                report(f"engine: {name}", "ms", **distribution(values))
        report("node: age at publication", "ms", **distribution(self.ages))
        report("node: rate", "Hz", value=self.ticks / seconds)
        dropped = self.dropped[1] - self.dropped[0]
        report("node: ticks", "1", published=self.ticks, dropped=dropped, skipped_since_start=self.skipped)


def status_line(status: Any, change: str | None = None) -> str:
    """A status message's numbers as JSON, and the parameter that was changed last."""
    stages = {name: round(ms, 2) for name, ms in zip(status.stages, status.stage_ms, strict=True)}
    return json.dumps(
        {
            **({} if change is None else {"changed": change}),
            "t0_s": round(status.header.stamp.sec + status.header.stamp.nanosec * 1e-9, 3),
            "ok": status.ok,
            "engine": status.engine,
            "stages_ms": stages,
            "age_ms": round(status.age_at_publication * 1e3, 2),
            "rate_hz": round(status.effective_rate, 2),
            "published": status.ticks_published,
            "dropped": status.ticks_dropped,
            "skipped": status.ticks_skipped,
            "gpu_bytes": status.gpu_memory_bytes,
        }
    )
