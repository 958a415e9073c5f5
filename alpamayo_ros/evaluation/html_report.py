"""An evaluation as one page that needs nothing but a browser: no network, no script, every picture inside."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape

from alpamayo_ros.core.comfort import BOUNDS
from alpamayo_ros.core.metrics import MISS_DISTANCE
from alpamayo_ros.evaluation import charts
from alpamayo_ros.evaluation.bootstrap import MIN_BLOCKS
from alpamayo_ros.evaluation.picture import printable
from alpamayo_ros.evaluation.scores import STEPS

Records = Sequence[Mapping[str, Any]]

TEMPLATE, SUMMARY_TEMPLATE = "report.html.j2", "summary.html.j2"
UNKNOWN, MINUS = "\N{EN DASH}", "\N{MINUS SIGN}"
COMFORT_UNITS = {
    "max_acceleration": "m/s²",
    "min_acceleration": "m/s²",
    "lateral_acceleration": "m/s²",
    "jerk": "m/s³",
    "jerk_of_magnitude": "m/s³",
    "yaw_rate": "rad/s",
    "yaw_acceleration": "rad/s²",
}


PAIRED_LABELS = {  # of a report's against_baselines: what it is, its unit, digits
    "min_ade": ("minADE", "m", 2),
    "ade": ("ADE", "m", 2),
    "fde": ("FDE", "m", 2),
    "miss": ("missed", "", 2),
    "miss_waymo": ("missed by Waymo's thresholds", "", 2),
    "longitudinal": ("longitudinal", "m", 2),
    "lateral": ("lateral", "m", 2),
    "heading": ("heading", "rad", 3),
    "progress": ("progress", "m", 2),
    "first_point": ("first point", "m", 3),
}


@dataclass(frozen=True)
class ShownTick:
    """One of the worst ticks, as the page shows it."""

    record: Mapping[str, Any]
    seconds: float  # after the start of the recording
    horizon: str  # s, of the error
    error: float  # ADE in m
    jpeg: bytes


def write_html(path: Path, report: Mapping[str, Any], records: Records, worst: Sequence[ShownTick]) -> None:
    """Write the page.

    Args:
        path: of the file.
        report: as in report.json.
        records: the lines of ticks.jsonl.
        worst: ticks to show, the worst first.
    """
    page = _render(TEMPLATE, report, worst=worst, charts=_charts(report, records), live=report.get("live"))
    path.write_text(page, encoding="utf-8")


def write_summary_html(path: Path, summary: Mapping[str, Any], failed: Mapping[str, str]) -> None:
    """Write the page over many bags, beside the folders of their results.

    Args:
        path: of the file.
        summary: as in summary.json.
        failed: why there are no results, by the name of the bag.
    """
    trained = all(bag["trained"] for bag in summary["bags"].values())
    path.write_text(_render(SUMMARY_TEMPLATE, summary, failed=failed, trained=trained), encoding="utf-8")


def words(name: str) -> str:
    """A key as a person would write it."""
    return name.replace("_", " ")


def number(value: float | None, digits: int = 2) -> str:
    """A figure, or a dash where it isn't known."""
    return UNKNOWN if value is None else f"{value:.{digits}f}".replace("-", MINUS)


def percent(value: float | None) -> str:
    """A share in percent, or a dash."""
    return UNKNOWN if value is None else f"{value:.0%}"


def interval(found: Mapping[str, Any], digits: int = 2) -> str:
    """A mean with its interval, where there is one."""
    if found["mean"] is None:
        return UNKNOWN
    mean = ("+" if found["mean"] > 0 else "") + number(found["mean"], digits)
    return mean if found["low"] is None else f"{mean} [{number(found['low'], digits)}, {number(found['high'], digits)}]"


def certain(found: Mapping[str, Any], digits: int = 2) -> bool:
    """Whether a difference has an interval that doesn't hold 0, as it is shown."""
    return found["low"] is not None and (round(found["low"], digits) > 0 or round(found["high"], digits) < 0)


def known(figures: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """The keys of figures that some tick knows."""
    return [key for key, figure in figures.items() if figure["n"]]


def jpeg(data: bytes) -> str:
    """A picture as a URL that holds it."""
    return "data:image/jpeg;base64," + base64.b64encode(data).decode()


def _render(template: str, report: Mapping[str, Any], **more: Any) -> str:
    """A page of a report, or of a summary, which has the same figures."""
    environment = Environment(
        loader=PackageLoader("alpamayo_ros.evaluation"),
        autoescape=select_autoescape(default=True),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    filters = (words, number, percent, interval, certain, known, jpeg, printable)
    environment.filters |= {each.__name__: each for each in filters}
    return environment.get_template(template).render(
        report=report,
        title=_title(report),
        rows=_rows(report),
        comparisons=_comparisons(report),
        horizons=list(STEPS),
        miss_distance=MISS_DISTANCE,
        min_blocks=MIN_BLOCKS,
        bounds=_bounds(),
        comfort_units=COMFORT_UNITS,
        **more,
    )


def _rows(report: Mapping[str, Any]) -> dict[str, Any]:
    """The model's figures and those of the baselines, by what a person calls them."""
    metrics = report["metrics"]
    if not metrics:
        return {}
    baselines = {words(name): figures for name, figures in metrics["baselines"].items()}
    return {"chosen path": metrics["chosen"], "best sample": metrics["best"], **baselines}


def _comparisons(report: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Every figure's differences from the baselines, as rows of a table; those that no tick knows are left out."""
    against = list(report["against_baselines"].values())
    found = []
    for key, (label, unit, digits) in PAIRED_LABELS.items():
        if key == "first_point":
            found.append((f"{label}, {unit}", digits, [each[key] for each in against]))
            continue
        for part in against[0][key]:
            name = f"{label}, k = {part}, {unit}" if key == "min_ade" else f"{label} at {part} s, {unit}"
            found.append((name.rstrip(", "), digits, [each[key][part] for each in against]))
    return [
        {"label": label, "digits": digits, "differences": differences}
        for label, digits, differences in found
        if differences[0]["n"]
    ]


def _title(report: Mapping[str, Any]) -> str:
    if "bags" in report:
        return f"Evaluation of {len(report['bags'])} bags"
    path = report["bag"]["path"]
    return f"Evaluation of the running node {path}" if "live" in report else f"Evaluation of {path.split('/')[-1]}"


def _bounds() -> dict[str, str]:
    """Each of nuPlan's bounds as text."""
    return {
        name: f"≥ {number(low)}" if high == float("inf") else f"≤ {number(high)}"
        for name, (low, high) in BOUNDS.items()
    }


def _charts(report: Mapping[str, Any], records: Records) -> list[dict[str, str]]:
    """The charts that can be drawn of what is known: title, what it shows in words, and a URL that holds the SVG."""
    ok, scored = report["ticks"]["ok"] > 0, bool(report["metrics"])
    wanted: list[tuple[bool, str, str, Callable[[], str]]] = [
        (scored, "Error against horizon", "half", lambda: charts.error_by_horizon(report)),
        (scored, "Error against speed", "half", lambda: charts.error_by_speed(records)),
        (ok, "Map of the drive", "half", lambda: charts.drive_map(records)),
        (ok, "Latency", "half", lambda: charts.latencies(records)),
        (ok and "live" in report, "Age at publication", "half", lambda: charts.ages(records)),
        (
            ok and "live" in report,
            "Rate over time",
            "half",
            lambda: charts.rate_over_time(records, report["bag"]["start_ns"]),
        ),
        (
            bool(records),
            "Skipped ticks over time",
            "whole",
            lambda: charts.skips_over_time(records, report["bag"]["start_ns"]),
        ),
    ]
    return [
        {"title": title, "width": width, "url": _svg_url(draw())} for possible, title, width, draw in wanted if possible
    ]


def _svg_url(svg: str) -> str:
    return "data:image/svg+xml;base64," + base64.b64encode(svg.encode()).decode()
