"""docs/benchmarks.md says what docs/benchmarks/*.json say."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from tools.bench import report

FACTS: dict[str, Any] = {
    "date": "2026-01-02T03:04:05+00:00",
    "commit": "abc1234",
    "dirty": False,
    "cores": 2,
    "memory_gib": 8,
    "kernel": "6.1.0-x",
    "python": "3.11.7",
    "postgres": "18.4",
    "fsync": "on",
    "payload": 256,
    "quick": False,
}
PAGE = "\n".join(
    f"By hand \\1.\n<!-- {name}: written by make figures -->\nold\n<!-- end of {name} -->"
    for name in ("bars", "latency", "spark", "peers", "scenarios")
)


def _ratio(run: int, ratio: float) -> dict[str, Any]:
    shown = {"name": "enqueue / no-op", "unit": "requests", "least": 0.7, "rate": 1000 * ratio, "base": 1000.0}
    return {"run": run, "ratio": ratio, "passed": ratio >= 0.7, **shown}


def _bars(day: int, *ratios: float) -> dict[str, Any]:
    figures = [_ratio(run, ratio) for run, ratio in enumerate(ratios, 1)]
    return {"facts": FACTS | {"date": f"2026-01-0{day}T00:00:00+00:00"}, "figures": figures}


def _series() -> dict[str, Any]:
    courses = {"holdfast": [[100, 50.0], [200, 25.0]], "a<b": [[100, 10.0], [150, 1.0]]}
    series = [
        {"system": system, "slices": slices, "held": held}
        for system, slices in courses.items()
        for held in (True, False)
    ]
    return {"facts": FACTS, "series": series}


def _latency(*, sustained: bool) -> dict[str, Any]:
    one = {
        "verb": "claim",
        "spacing": "poisson",
        "capacity": 2000.0,
        "share": 0.9,
        "arrived": 1800.0,
        "failed": 0,
        "unanswered": 0,
        "unsent": 0 if sustained else 7,
        "sustained": sustained,
        "p50_ms": 1.25,
        "p99_ms": 9.0,
        "p999_ms": None,
        "max_ms": 10.0,
        "late_p99_ms": 0.4,
    }
    return {"facts": FACTS | {"seconds": 10.0, "connections": 256, "load": 0.1}, "latency": [one]}


def test_the_page_and_its_pictures_are_what_the_files_say() -> None:
    taken = report.read(report.DOCS / "benchmarks")
    page = (report.DOCS / "benchmarks.md").read_text()
    assert report.written(page, taken) == page, "run: make figures"
    shown = set(re.findall(r"\(benchmarks/(\w+\.svg)\)", page))
    drawn = report.pictures(taken)
    assert shown == set(drawn)
    for name, picture in drawn.items():
        assert (report.DOCS / "benchmarks" / name).read_text() == picture, f"run: make figures ({name})"


def test_the_files_have_a_line_for_each_figure_and_no_rounds() -> None:
    for path in (report.DOCS / "benchmarks").glob("*.json"):
        assert path.read_text() == report.short(json.loads(path.read_text())), "run: make figures"
    run = {
        "facts": FACTS,
        "figures": [{"name": "a", "rate": 2.0, "rates": [1.0, 2.0, 3.0]}, {"name": "b", "notes": {}}],
    }
    text = report.short({**run, "jobs_per_s_by_slice": {"a": []}})
    assert json.loads(text) == {"facts": FACTS, "figures": [{"name": "a", "rate": 2.0}, {"name": "b"}]}
    assert len(text.splitlines()) == 5


def test_only_what_stands_between_the_markers_changes() -> None:
    page = report.written(PAGE, [_bars(1, 0.8)])
    assert page.count("By hand \\1.") == 5
    assert "old" not in page
    assert page.count(report.NOTHING) == 4
    assert report.written(page, [_bars(1, 0.8)]) == page
    with pytest.raises(ValueError, match="end of peers"):
        report.written(PAGE.replace("<!-- end of peers -->", ""), [])


def test_the_three_newest_runs_stand_side_by_side(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps(_bars(1, 0.61, 0.62)))
    (tmp_path / "b.json").write_text(json.dumps(_bars(2, 0.81, 0.82)))
    row = report.bars(report.read(tmp_path)).splitlines()[2]
    assert row == "| enqueue / no-op | ≥ 0.70 | 0.82 pass | 0.81 pass | 0.62 **missed** | 820 / 1,000 requests/s |"


def test_an_upper_bound_has_its_unit() -> None:
    bound = {"name": "memory", "run": 1, "unit": "MB", "value": 90.04, "most": 250.0, "passed": True}
    row = report.bars([{"facts": FACTS, "figures": [bound]}]).splitlines()[2]
    assert row == "| memory | ≤ 250 MB | 90.0 pass |  |  |  |"


def test_a_rate_that_was_not_sustained_is_said_in_table_and_picture() -> None:
    bad, good = _latency(sustained=False), _latency(sustained=True)
    assert "| claim | 2,000 | 90% | 1,800 | 1.2 | 9.0 | – | 10.0 | **not sustained, 7 unsent** |" in report.latency(
        [bad]
    )
    assert "not sustained" not in report.latency([good])
    assert "Rings" in report.pictures([bad])["latency.svg"]
    assert "Rings" not in report.pictures([good])["latency.svg"]


def test_a_figure_over_a_ledger_has_its_seconds_and_its_rate() -> None:
    run = {"facts": FACTS | {"load": 0.1}, "events": 1_000_000, "rounds": 2, "spark": {"read": 8.0}}
    assert report.spark([_bars(1, 0.8), run]).startswith("| over 1,000,000 events | s | events/s |")
    assert "| read | 8.0 | 125,000 |" in report.spark([run])


def test_a_scenario_has_what_is_left_of_its_rate() -> None:
    one = {
        "name": "burst",
        "base": 1000.0,
        "during": 500.0,
        "after": 940.0,
        "recovered_s": None,
        "left": 3,
        "least_during": 0.9,
        "passed": False,
    }
    table = report.scenarios([{"facts": FACTS | {"load": 0.1}, "scenarios": [one]}])
    assert "| burst | 1,000 | 0.50 (≥ 0.9) | 940 | 0.94 **missed** | never | 3 |" in table


def test_a_short_run_says_that_it_is_one_and_passes_no_bar() -> None:
    short = _bars(1, 0.8)
    short["facts"]["quick"] = True
    assert "A short run" in report.bars([short])
    assert "| 0.80 |" in report.bars([short])
    assert "A short run" not in report.bars([_bars(1, 0.8)])


def test_rates_over_all_slices_are_jobs_by_time() -> None:
    # 100 jobs in 2 s, 100 more in 4 s.
    assert "| Holdfast | held | 200 | 33 | 50 | 25 | 0.50 |" in report.peers([_series()])


def test_runs_with_and_without_a_snapshot_may_come_from_two_files() -> None:
    both = _series()["series"]
    held, free = ({"facts": FACTS, "series": [one for one in both if one["held"] is kind]} for kind in (True, False))
    for taken in ([held, free], [free, held]):
        assert report.peers(taken).count("| held |") == report.peers(taken).count("| none |") == 2
        assert "snapshot.svg" in report.pictures(taken)
    assert report.pictures([free]) == {}


def test_the_picture_of_the_snapshot_has_a_named_line_for_each_system_that_was_run_under_it() -> None:
    root = ElementTree.fromstring(report.pictures([_series()])["snapshot.svg"])
    tag = "{http://www.w3.org/2000/svg}"
    names = [text.text for text in root.iter(f"{tag}text") if "name" in text.get("class", "").split()]
    assert sorted(filter(None, names)) == ["Holdfast", "a<b"]
    assert len(list(root.iter(f"{tag}polyline"))) == 2
    assert "prefers-color-scheme: dark" in (root.findtext(f"{tag}style") or "")


def test_rates_are_drawn_as_long_as_they_are() -> None:
    one = {"name": "batch of 9, claim over HTTP / its statement alone", "run": 2, "rate": 50.0, "base": 100.0}
    before = {**one, "run": 1, "rate": 90.0}
    drawn = report.pictures([{"facts": FACTS, "figures": [before, one, {"name": "other", "run": 3}]}])["rates.svg"]
    assert re.findall(r'<rect x="100" y="\d+" width="([\d.]+)"', drawn) == ["260.0", "520.0"]
    assert ">claim</text>" in drawn
    assert "rates.svg" not in report.pictures([_bars(1, 0.8)])
