"""The drawings of a report, each as the text of an SVG file."""

from __future__ import annotations

import io
import itertools
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from alpamayo_ros.core.manoeuvre import speed_bins
from alpamayo_ros.evaluation.picture import BASELINE_COLORS, CANDIDATE, CHOSEN, STOP, TRUTH
from alpamayo_ros.evaluation.scores import STEPS

Records = Sequence[Mapping[str, Any]]

STYLE = {
    "svg.fonttype": "none",  # text stays text
    "svg.hashsalt": "alpamayo_ros",  # the same ids every time
    "font.family": "sans-serif",
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.grid": True,
    "grid.color": "#e3e6ea",
    "grid.linewidth": 0.7,
    "axes.edgecolor": "#8a9099",
    "legend.edgecolor": "none",
    "legend.framealpha": 0.85,
    "legend.fontsize": 8,
}
WIDTH, HEIGHT = 5.6, 3.1  # inches of one chart; two stand beside each other
FURTHEST = list(STEPS)[-1]
SKIP_COLORS = ("#b2182b", "#e08214", "#8073ac", "#35978f", "#bf812d", "#c51b7d", "#4d4d4d", "#4393c3")


def error_by_horizon(report: Mapping[str, Any]) -> str:
    """Mean ADE of model and baselines at each horizon; the baseline that stops is left out where it dwarfs the rest."""
    metrics = report["metrics"]
    lines = {"chosen path": (metrics["chosen"], CHOSEN, "-", 2.4), "best sample": (metrics["best"], CANDIDATE, "-", 2)}
    for name, figures in metrics["baselines"].items():
        lines[name.replace("_", " ")] = (figures, BASELINE_COLORS[name], "--", 1.5)
    with _chart() as (axes, svg):
        top = 0.0
        for name, (figures, color, style, width) in lines.items():
            known = [(float(h), each["mean"]) for h, each in figures["ade"].items() if each["mean"] is not None]
            horizons, errors = [0.0, *(h for h, _ in known)], [0.0, *(error for _, error in known)]
            axes.plot(horizons, errors, color=color, linestyle=style, linewidth=width, marker="o", ms=4, label=name)
            if name != "stop":
                top = max(top, *errors)
        axes.set_ylim(0, max(top * 1.15, 0.1))
        axes.set_xlim(0, float(FURTHEST) * 1.02)
        axes.set_xlabel("horizon in s")
        axes.set_ylabel("mean ADE in m")
        axes.legend(
            loc="lower center", bbox_to_anchor=(0.46, 1), ncols=3, columnspacing=1.2
        )  # above: lines are anywhere
    return svg.getvalue()


def error_by_speed(records: Records) -> str:
    """ADE of the chosen path at the full horizon: every tick, and the mean of each speed bin."""
    known = [(r["speed"], r["metrics"]["chosen"]["ade"][FURTHEST]) for r in _scored(records)]
    points = np.array([(speed, error) for speed, error in known if error is not None]).reshape(-1, 2)
    with _chart() as (axes, svg):
        axes.scatter(points[:, 0], points[:, 1], s=12, color=CHOSEN, alpha=0.35, linewidth=0)
        edges = [float(name.split("-")[0].rstrip("+")) for name in speed_bins()] + [np.inf]
        highest = float(points[:, 0].max(initial=1.0)) * 1.05
        for low, high in itertools.pairwise(edges):
            inside = points[(points[:, 0] >= low) & (points[:, 0] < high), 1]
            if inside.size:
                end = min(high, highest)
                axes.plot([low, end], [inside.mean()] * 2, color="black", linewidth=2)
                note = f"n = {inside.size}"
                axes.annotate(note, ((low + end) / 2, inside.mean()), (0, 3), textcoords="offset points", ha="center")
        axes.set_xlim(0, highest)
        axes.set_ylim(bottom=0)
        axes.set_xlabel("speed at t0 in m/s; bars: means of the speed bins")
        axes.set_ylabel(f"ADE at {FURTHEST} s in m")
    return svg.getvalue()


def latencies(records: Records) -> str:
    """How long ticks waited for the engine."""
    return _histogram(records, "engine_total", "engine's time per tick in ms")


def ages(records: Records) -> str:
    """How old ticks were when a running node published their paths."""
    return _histogram(records, "age_at_publication", "from the tick's t0 to its publication in ms")


def rate_over_time(records: Records, start_ns: int) -> str:
    """How many paths a running node published in a second, by the times between them."""
    stamps = np.sort(np.array([record["t0_ns"] for record in records if record["skip"] is None]))
    seconds, apart = (stamps[1:] - start_ns) * 1e-9, np.diff(stamps) * 1e-9
    with _chart() as (axes, svg):
        known = apart > 0  # a bag that was played twice has each twice
        axes.plot(seconds[known], 1 / apart[known], color=CHOSEN, linestyle="none", marker="o", ms=3, alpha=0.6)
        axes.set_ylim(bottom=0)
        axes.set_xlabel("s after the start")
        axes.set_ylabel("paths a second")
    return svg.getvalue()


def _histogram(records: Records, stage: str, label: str) -> str:
    times = np.array([r["timings_ms"][stage] for r in records if stage in r["timings_ms"]])
    with _chart() as (axes, svg):
        axes.hist(times, bins=min(40, max(8, len(times) // 4)), color=CANDIDATE, edgecolor="white", linewidth=0.5)
        for value, name, color in (
            (np.median(times), "median", CHOSEN),
            (np.percentile(times, 99), "99 %", STOP),
        ):
            axes.axvline(value, color=color, linewidth=1.6, label=f"{name}: {value:.{0 if value >= 10 else 2}f} ms")
        axes.set_xlabel(label)
        axes.set_ylabel("ticks")
        axes.yaxis.get_major_locator().set_params(integer=True)
        axes.legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=2)  # above: a line may stand anywhere
    return svg.getvalue()


def drive_map(records: Records) -> str:
    """Where the ticks were, in the odometry's frame, coloured by the chosen path's ADE; skipped ones have no place."""
    placed = [r for r in records if r["position"] is not None]
    xy = np.array([r["position"][:2] for r in placed])
    xy = xy - xy[0]
    errors = np.array([_error(r) for r in placed])  # NaN where it isn't known
    with _chart() as (axes, svg):
        axes.plot(xy[:, 0], xy[:, 1], color="#b9c0c8", linewidth=1, zorder=1)
        unknown = np.isnan(errors)
        axes.scatter(xy[unknown, 0], xy[unknown, 1], s=14, facecolor="white", edgecolor="#8a9099", zorder=2)
        if not unknown.all():
            top = max(float(np.nanpercentile(errors, 95)), 1e-3)
            colors = {"c": errors[~unknown], "cmap": "turbo", "vmin": 0, "vmax": top}
            dots = axes.scatter(xy[~unknown, 0], xy[~unknown, 1], s=20, linewidth=0, zorder=3, **colors)
            bar = axes.figure.colorbar(dots, ax=axes, extend="max", fraction=0.05, pad=0.03)
            bar.set_label(f"ADE at {FURTHEST} s in m")
            bar.outline.set_visible(False)
        axes.plot(*xy[0], marker="^", color="black", ms=6, zorder=4)
        axes.set_aspect("equal", adjustable="datalim")
        axes.set_xlabel("x in m from the first tick (triangle); hollow: future unknown")
        axes.set_ylabel("y in m")
    return svg.getvalue()


def skips_over_time(records: Records, start_ns: int) -> str:
    """Which ticks were skipped, when, and why: one row per reason, above a row for the ticks that gave a path."""
    reasons = list(dict.fromkeys(r["skip"] for r in records if r["skip"] is not None))
    with _chart(2 * WIDTH + 0.3, 0.9 + 0.24 * (len(reasons) + 1)) as (axes, svg):
        for row, reason in enumerate([None, *reasons]):
            times = [(r["decided_ns"] - start_ns) * 1e-9 for r in records if r["skip"] == reason]
            color = TRUTH if reason is None else SKIP_COLORS[(row - 1) % len(SKIP_COLORS)]
            axes.plot(times, [row] * len(times), linestyle="none", marker="|", ms=10, mew=1.6, color=color)
        axes.set_yticks(range(len(reasons) + 1), ["gave a path", *reasons])
        axes.set_ylim(-0.6, len(reasons) + 0.6)
        last_ns = max(record["decided_ns"] for record in records)
        axes.set_xlim(0, max((last_ns - start_ns) * 1e-9, 1e-3) * 1.01)
        axes.grid(False, axis="y")
        axes.set_xlabel("s after the start")
    return svg.getvalue()


@contextmanager
def _chart(width: float = WIDTH, height: float = HEIGHT) -> Iterator[tuple[Any, io.StringIO]]:
    """Axes to draw on, and the text that the drawing becomes when the block ends."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    svg = io.StringIO()
    with rc_context(STYLE):
        figure = Figure(figsize=(width, height), layout="constrained")
        yield figure.add_subplot(), svg
        figure.savefig(svg, format="svg", metadata={"Date": None}, transparent=True)


def _scored(records: Records) -> list[Mapping[str, Any]]:
    return [record for record in records if record["metrics"] is not None]


def _error(record: Mapping[str, Any]) -> float:
    error = None if record["metrics"] is None else record["metrics"]["chosen"]["ade"][FURTHEST]
    return np.nan if error is None else float(error)
