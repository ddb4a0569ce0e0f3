"""failures: clusters of real jobs that failed, and what they have in common."""

from __future__ import annotations

import json
from argparse import Namespace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark import report
from spark.pipelines import failures
from spark.texts import clean, clean_line
from tests.api.dialect import Body, Topic
from tests.spark.past import World, aside


async def work(topic: Topic, records: list[Body], errors: dict[int, str], node: str = "w1") -> None:
    """Do them: those at these places fail."""
    seqs: list[int] = (await topic.append(*records))["seqs"]
    await topic.claim(node=node, max=len(seqs))
    failing = [seqs[place] for place in sorted(errors)]
    await topic.nack(node, failing, errors=[errors[place] for place in sorted(errors)])
    await topic.ack(node, [seq for seq in seqs if seq not in failing])


def asked(tmp_path: Path, **given: object) -> Namespace:
    now = datetime.now(UTC)
    window = {"start": (now - timedelta(hours=1)).isoformat(), "end": (now + timedelta(hours=1)).isoformat()}
    files = {"html": str(tmp_path / "f.html"), "json": str(tmp_path / "f.json"), "from_files": None}
    return Namespace(**{"day": None, "topic": None, **window, **files, **given})


async def test_clusters_and_what_sets_their_jobs_apart(spark: SparkSession, world: World, tmp_path: Path) -> None:
    orders = await world.topic("orders", max_deliveries=1, dead_letter="orders.dlq", replayable=True)
    norway = [{"data": {"to": "NO", "n": n % 4}, "meta": {"version": "2"}} for n in range(12)]
    others = [{"data": {"to": "DE", "n": n % 4}, "meta": {"version": "1"}} for n in range(40)]
    await work(orders, norway, {n: f"KeyError: 'tax-{n}'" for n in range(12)}, "w2")
    await work(orders, others, {0: "Timeout after 30 s", 1: "Timeout after 31 s"})
    mail = await world.topic("mail", max_deliveries=1, on_exhausted="fail")
    hostile = "<script>alert(1)</script>\u202e gone"
    await work(mail, [{"data": "a"}, {"data": "b"}], {0: hostile})

    assert await aside(failures.main, spark, world.dsn, asked(tmp_path)) == 0
    found = json.loads((tmp_path / "f.json").read_text())
    assert (found["failed"], found["completed"], found["kinds"]) == (15, 39, 3)
    tax, timeout, odd = found["clusters"]
    known = {(topic, one["title"]): one for topic in ("orders", "mail")
             for one in (await world.http.get(f"/v0/topics/{topic}/failures")).json()["failures"]}  # fmt: skip
    for one in found["clusters"]:  # they are the service's own
        assert one["cluster"] == known[one["topic"], one["title"]]["cluster"]
        assert one["count"] == known[one["topic"], one["title"]]["count"]

    about = [tax[name] for name in ("topic", "title", "count", "payloads", "good")]
    assert about == ["orders", "KeyError: *", 12, 12, 38]
    marks = {mark["path"]: mark for mark in tax["marks"]}
    country = marks["$.to"]
    assert (country["what"], country["failing"], country["good"], country["support"]) == ('= "NO"', 12, 0, 1.0)
    assert country["lift"] == pytest.approx(50 / 12)
    assert marks["meta.version"]["what"] == '= "2"'
    assert "$.n" not in marks, "it says nothing"
    [version] = tax["versions"]
    assert version | {"path": "meta.version", "value": '"2"', "failing": 12, "good": 0} == version
    [worker] = tax["workers"]
    assert worker | {"name": "w2", "failed": 12, "share": 0.0, "stands_out": True} == worker
    assert (timeout["count"], timeout["marks"]) == (2, [])
    assert "too few to compare" in timeout["note"]
    assert (odd["topic"], odd["marks"]) == ("mail", [])
    assert odd["note"] == failures.NO_GOOD

    page = (tmp_path / "f.html").read_text()
    assert "<script" not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;· gone" in page
    assert "http:" not in page.replace("http://www.w3.org", ""), "it loads nothing"


async def test_a_time_without_failures_says_so(spark: SparkSession, world: World, tmp_path: Path) -> None:
    await world.topic("quiet")
    args = asked(tmp_path, topic="quiet")
    assert await aside(failures.main, spark, world.dsn, args) == 0
    assert "No job failed in this time." in (tmp_path / "f.html").read_text()


def test_untrusted_texts_are_cut_and_shown_plainly() -> None:
    assert clean("a\x1b[31m\u202eb\u2028", 50) == "a·[31m·b\u2028"
    assert clean_line("a\n\x1b[2J\u2028b", 50) == "a··[2J·b", "a terminal is handed one line"
    assert clean("x" * 300, 10) == "x" * 10 + "…"
    assert report.duration(90_000) == "1.5 min"
