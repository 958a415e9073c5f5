"""The page holds everything itself, shows what the report says, and looks right in a browser where there is one."""

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import cv2
import numpy as np
import pytest
from drives import JPEG, circle, record, rig, straight, write_bag
from pages import Page

from alpamayo_ros.engine.null_engine import NullEngine
from alpamayo_ros.evaluation.bag import BagReader
from alpamayo_ros.evaluation.evaluate import Job, evaluate
from alpamayo_ros.evaluation.html_report import ShownTick, write_html
from alpamayo_ros.evaluation.inputs import BagInputs

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of a drive along a circle that is long enough for intervals, and in which a camera is silent for a second."""
    folder = tmp_path_factory.mktemp("results")
    sent = [
        each for each in record(circle(8.0, 60.0), 60) if not ("image" in each.topic and 20.05 < each.seconds < 21.15)
    ]
    settings = rig()
    with BagReader(write_bag(folder / "circle", sent)) as bag:
        evaluate(Job(bag, BagInputs(bag, settings), settings, NullEngine()), folder / "out")
    return folder / "out"


@pytest.fixture(scope="module")
def report(results: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((results / "report.json").read_text())
    return found


@pytest.fixture(scope="module")
def page(results: Path) -> Page:
    return Page((results / "report.html").read_text())


def test_nothing_is_fetched_and_nothing_runs(results: Path, page: Page) -> None:
    assert page.addresses
    assert all(address.startswith("data:image/") for address in page.addresses)
    assert not {"script", "link", "iframe", "object", "form"} & set(page.tags)
    style = (results / "report.html").read_text()
    assert "url(" not in style
    assert "@import" not in style


def test_every_picture_can_be_read(page: Page) -> None:
    drawings = [image for image in page.images if image.lstrip().startswith(b"<?xml")]
    photos = [image for image in page.images if image.startswith(b"\xff\xd8")]
    assert len(drawings) == 5
    for drawing in drawings:
        assert ElementTree.fromstring(drawing).tag.endswith("svg")
        assert b"http://www.w3.org/" in drawing  # names of XML, which no browser fetches
        assert not re.search(rb"""href=["'](?!#|data:image/png)""", drawing)
    assert len(photos) == 10
    for photo in photos:
        assert cv2.imdecode(np.frombuffer(photo, np.uint8), cv2.IMREAD_COLOR).shape == (750, 1200, 3)


def test_it_says_first_what_open_loop_is_worth(page: Page) -> None:
    assert "don't tell how well the model would drive" in page.text
    assert "No model ran" in page.text


def test_the_table_has_the_reports_figures(page: Page, report: dict[str, Any]) -> None:
    metrics = report["metrics"]
    for name, figures in {"chosen path": metrics["chosen"], "stop": metrics["baselines"]["stop"]}.items():
        means = [f"{figures['ade'][horizon]['mean']:.2f}" for horizon in ("1.0", "2.0", "3.0", "5.0", "6.4")]
        errors, final, missed = page.rows_of(name)[:3]
        assert errors[:5] == means
        assert final == [f"{figures['fde'][horizon]['mean']:.2f}" for horizon in ("1.0", "2.0", "3.0", "5.0", "6.4")]
        assert missed == [f"{figures['miss'][horizon]['rate']:.0%}" for horizon in ("1.0", "2.0", "3.0", "5.0", "6.4")]
    difference = report["against_baselines"]["stop"]["ade"]["6.4"]
    assert difference["blocks"] >= 5
    expected = f"{difference['mean']:.2f} [{difference['low']:.2f}, {difference['high']:.2f}]"
    assert page.rows_of("stop")[0][-1].replace("\N{MINUS SIGN}", "-") == expected


def test_every_figure_stands_beside_each_baseline_with_its_interval(page: Page, report: dict[str, Any]) -> None:
    against = report["against_baselines"]
    shown = {
        "ADE at 2.0 s, m": [each["ade"]["2.0"] for each in against.values()],
        "FDE at 6.4 s, m": [each["fde"]["6.4"] for each in against.values()],
        "lateral at 5.0 s, m": [each["lateral"]["5.0"] for each in against.values()],
        "minADE, k = 6, m": [each["min_ade"]["6"] for each in against.values()],
        "missed by Waymo's thresholds at 3.0 s": [each["miss_waymo"]["3.0"] for each in against.values()],
    }
    for name, expected in shown.items():
        row = page.row(name)
        assert row[-1] == str(expected[0]["n"])
        for cell, difference in zip(row, expected, strict=False):
            figures = [float(text) for text in re.findall(r"[-\d.]+", cell.replace("\N{MINUS SIGN}", "-"))]
            assert figures == pytest.approx([difference[key] for key in ("mean", "low", "high")], abs=0.006)


def test_it_tells_how_to_repeat_the_run(page: Page, report: dict[str, Any]) -> None:
    for name, value in report["settings"].items():
        assert page.row(name) == [str(value)]
    assert page.row("checkpoint_hash") == [report["engine"]["checkpoint_hash"]]
    assert page.row("numpy") == [np.__version__]
    for reason, count in report["skips"].items():
        assert page.row(reason) == [str(count)]
    assert "camera_gap" in report["skips"]


def test_the_worst_ticks_come_worst_first(page: Page, results: Path) -> None:
    ticks = [json.loads(line) for line in (results / "ticks.jsonl").read_text().splitlines()]
    errors = [tick["metrics"]["chosen"]["ade"]["6.4"] for tick in ticks if tick["metrics"]]
    expected = sorted((error for error in errors if error is not None), reverse=True)[:10]
    shown = [float(found) for found in re.findall(r"after the start: ([\d.]+) m over 6.4 s", page.text)]
    assert shown == pytest.approx(expected, abs=0.005)


def test_what_the_model_writes_is_text_and_no_markup(tmp_path: Path, report: dict[str, Any], results: Path) -> None:
    ticks = [json.loads(line) for line in (results / "ticks.jsonl").read_text().splitlines()]
    tick = next(each for each in ticks if each["metrics"])
    said = "</section><script>alert('&')</script>\x00\x1b"
    write_html(tmp_path / "page.html", report, ticks, [ShownTick({**tick, "reasoning": said}, 1.0, "6.4", 2.0, JPEG)])
    written = Page((tmp_path / "page.html").read_text())
    assert "</section><script>alert('&')</script>\N{WHITE SQUARE}\N{WHITE SQUARE}" in written.text
    assert "script" not in written.tags


def test_a_drive_without_a_path_is_a_page_too(tmp_path: Path) -> None:
    settings = rig()
    with BagReader(write_bag(tmp_path / "short", record(straight(9.0), 1))) as bag:
        found = evaluate(Job(bag, BagInputs(bag, settings), settings, NullEngine()), tmp_path / "out")
    assert found["ticks"]["ok"] == 0
    page = Page((tmp_path / "out" / "report.html").read_text())
    assert page.row("ego_history_short") == [str(found["skips"]["ego_history_short"])]


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed: the page was parsed, but not looked at")
def test_a_laptop_shows_all_of_its_width_and_every_picture(tmp_path: Path, results: Path) -> None:
    measure = """<script>addEventListener("load", () => document.title = JSON.stringify({
        width: document.documentElement.scrollWidth, pictures: [...document.images].map(i => i.naturalWidth),
        wide: [...document.querySelectorAll("table, img")].filter(
            e => e.getBoundingClientRect().right > e.parentElement.getBoundingClientRect().right + 1).length}))
        </script>"""
    measured = tmp_path / "measured.html"
    measured.write_text((results / "report.html").read_text().replace("</body>", f"{measure}</body>"))
    command = [str(CHROMIUM), "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}"]
    command += ["--window-size=1280,900", "--virtual-time-budget=5000", "--dump-dom", measured.as_uri()]
    dom = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout
    title = re.search(r"<title>(.*?)</title>", dom)
    assert title is not None
    found = json.loads(title[1])
    assert found["width"] <= 1280
    assert found["wide"] == 0
    assert len(found["pictures"]) == 15
    assert min(found["pictures"]) > 0
