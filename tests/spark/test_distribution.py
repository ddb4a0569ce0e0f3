"""The same on a cluster: executors in processes of their own, in folders of their own, without the project."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import venv
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, date, datetime
from importlib.metadata import distribution
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pyspark
import pytest
from pydantic import SecretStr

from app.settings import Settings
from spark import pipelines
from spark.session import PACKAGE, driver_jar, zipped
from tests.conftest import Running
from tests.spark.conftest import QUICK, UNCOMPILED, Lived
from tests.spark.past import World, shift, tell

HERE = Path(__file__).parent
PINS = HERE.parents[1] / "deploy/requirements/spark.txt"
SECONDS = 600  # some 40 on a machine that does nothing else
SETTINGS = (
    "spark.ui.enabled=false",
    "spark.sql.shuffle.partitions=2",
    *(f"{name}={value}" for name, value in UNCOMPILED.items()),
    "spark.driver.host=127.0.0.1",
    f"spark.driver.extraJavaOptions={QUICK}",
    f"spark.executor.extraJavaOptions={QUICK}",
)
STATS = "SELECT * FROM holdfast.topic_stats ORDER BY topic_id, minute, tenant"


class Submit:
    """spark-submit as on a machine with Spark and the pinned packages, and nothing of this project but two files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "elsewhere"
        self.folder.mkdir()
        self.zip = zipped(folder)
        self.python = pinned(folder / "environment")
        # Workers of local-cluster keep their files in Spark's own folder.
        self.home = folder / "spark-home"
        self.home.mkdir()
        for entry in Path(pyspark.__path__[0]).iterdir():
            (self.home / entry.name).symlink_to(entry)

    async def run(self, master: str, script: Path, asked: object) -> dict[str, Any]:
        """What the script tells of what it was asked."""
        shutil.copy(script, self.folder)
        plan, told = self.folder / "plan.json", self.folder / "told.json"
        plan.write_text(json.dumps(asked))
        command = [str(self.home / "bin/spark-submit"), "--master", master, "--py-files", str(self.zip)]
        command += ["--jars", str(driver_jar())]
        for setting in SETTINGS:
            command += ["--conf", setting]
        mine = {"SPARK_HOME": str(self.home), "PYSPARK_PYTHON": str(self.python), "SPARK_LOCAL_IP": "127.0.0.1"}
        kept = {name: value for name, value in os.environ.items() if name in ("PATH", "HOME", "JAVA_HOME")}
        ran = await asyncio.to_thread(
            subprocess.run, [*command, script.name, str(plan), str(told)], cwd=self.folder, env=kept | mine,
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=SECONDS, check=False,
        )  # fmt: skip
        assert ran.returncode == 0, ran.stderr[-5000:]
        found: dict[str, Any] = json.loads(told.read_text())
        return found


def pinned(folder: Path) -> Path:
    """A Python that has what deploy/requirements/spark.txt pins, and nothing else."""
    venv.create(folder, symlinks=True)
    [packages] = folder.glob("lib/python*/site-packages")
    for line in PINS.read_text().splitlines():
        name, is_pin, _ = line.partition("==")
        if not is_pin or (packages / name).exists():
            continue
        for top in {file.parts[0] for file in distribution(name).files or () if file.parts[0] != ".."}:
            if not (packages / top).exists():
                (packages / top).symlink_to(str(distribution(name).locate_file(top)))
    return folder / "bin/python"


@pytest.fixture
async def world(lived: Lived, empty_database: Callable[..., Awaitable[str]]) -> AsyncIterator[World]:
    """The mixed load, a day later, in a copy to write to."""
    dsn = await empty_database(urlsplit(lived.dsn).path[1:])
    service = Running(Settings.model_validate({"database_url": SecretStr(dsn)}))
    await service.start()
    async with httpx.AsyncClient(base_url=service.url, timeout=35) as http:
        yield World(dsn, service.context.pools, http)
    await service.stop()


@pytest.mark.slow
@pytest.mark.timeout(SECONDS + 60)
async def test_every_pipeline_on_a_cluster(tmp_path: Path, world: World, lived: Lived) -> None:
    """Over a ledger that lacks one row: an ack's."""
    first = await shift(world.pools.rest)
    until = datetime.now(UTC).date()
    [(lost,)] = await world.rows(
        "DELETE FROM holdfast.lease_events e USING (SELECT min(seq) AS seq FROM holdfast.lease_events"
        " WHERE topic = 'renders' AND event = 'acked') x WHERE e.topic = 'renders' AND e.seq = x.seq"
        " AND e.event = 'acked' RETURNING e.seq"
    )
    for topic in "ingested", "replayed":
        await world.topic(topic)
    await tell(world.pools, since="3 days")
    told_before = await world.rows(STATS)
    [(gone,)] = await world.rows(
        "WITH d AS (DELETE FROM holdfast.topic_stats WHERE topic = 'mail' RETURNING 1) SELECT count(*) FROM d"
    )
    facts = await counted(world, first, until)
    (tmp_path / "rows.ndjson").write_text("".join(f'{{"n": {n}}}\n' for n in range(50)))

    submit = Submit(tmp_path)
    asked = {"dsn": world.dsn, "pipelines": plan(tmp_path, str(world.http.base_url), first, until)}
    told = await submit.run("local-cluster[2,1,1024]", HERE / "on_a_cluster.py", asked)
    assert told.pop("master") == "local-cluster[2,1,1024]"
    workers = told.pop("workers")
    assert len({worker["folder"] for worker in workers}) == 2, "both executors have worked"
    for worker in workers:
        assert worker["folder"].startswith(str(submit.home))
        assert str(PACKAGE.parent) not in worker["path"].replace(str(Path(pyspark.__path__[0])), "")
        assert not worker["package"].startswith(str(PACKAGE))
        assert ".zip" in worker["package"]
        assert worker["could import"] == []

    print({name: one["seconds"] for name, one in told.items()})
    assert {name: one["code"] for name, one in told.items()} == dict.fromkeys(pipelines.PIPELINES, 0) | {"audit": 1}
    said: dict[str, list[str]] = {name: one["said"] for name, one in told.items()}
    assert said["ingest"][0] == "50 rows, 0 of them bad"
    assert await payloads(world, "ingested") == [f'{{"n": {n}}}' for n in range(50)]
    kept = {(table, rows) for table, _, rows in await world.marks() if rows}
    assert {table for table, _ in kept} == {"archive", "lease_events", "results"}
    assert sum(rows for table, rows in kept if table == "lease_events") == facts["events"] == lived.events - 1
    assert said["replay"][-1].startswith(f"enqueued {facts['reports']} jobs at ")
    assert len(await payloads(world, "replayed")) == facts["reports"] > 0
    assert said["throughput"][-1].endswith(f"; {gone:,} were missing, or others")
    assert await world.rows(STATS) == told_before
    assert said["failures"][0].startswith(f"{facts['failed']:,} jobs failed, {facts['acked']:,} were completed;")
    assert json.loads((tmp_path / "forecast.json").read_text())["ended"] == facts["mail"]
    assert said["redrive"][-1] == f"requeued {facts['letters']:,}, skipped 0, failed again 0"
    assert said["audit"][0].startswith(f"{lived.events - 1:,} events of ")
    assert said["audit"][1] == "1 counterexample: lost 1"
    assert said["audit"][3] == f"lost: job {lost} of renders is not there, and no event ended it"
    assert said["audit"][-1].startswith("> ")


def plan(folder: Path, url: str, first: date, until: date) -> dict[str, list[str]]:
    """The words of each pipeline, in the order in which they run. Events come from the database, and from files."""
    window, files = ["--from", str(first), "--to", str(until)], ["--from-files", str(folder / "files")]
    pages = {name: ["--html", str(folder / name), "--json", f"{folder / name}.json"] for name in pipelines.PIPELINES}
    return {
        "ingest": ["--topic", "ingested", "--files", str(folder / "rows.ndjson")],
        "throughput": window,
        "archive": ["--to", str(folder / "files")],
        "replay": ["--topic", "reports", "--into", "replayed", *window, *files],
        "latency": [*window, *files],
        "failures": [*window, *pages["failures"]],
        "forecast": ["--topic", "mail", *window, "--replay", str(first), "--workers", "2", *pages["forecast"]],
        "redrive": ["--topic", "imports", "--where", "last_error LIKE 'Timeout%'", "--canary", "0", "--url", url],
        "audit": [*window, *files, "--limit", "1"],
    }


async def counted(world: World, first: date, until: date) -> dict[str, int]:
    """What the pipelines are to find, asked in SQL."""
    [row] = await world.pools.rest.fetch(
        "SELECT count(*) AS events, count(*) FILTER (WHERE event IN ('failed', 'dead_lettered')) AS failed,"
        " count(*) FILTER (WHERE event = 'acked') AS acked, count(*) FILTER (WHERE topic = 'mail' AND"
        " began_at IS NOT NULL AND event IN ('acked', 'released', 'failed', 'dead_lettered', 'cancelled')) AS mail,"
        " (SELECT count(*) FROM holdfast.archive WHERE topic = 'reports') AS reports,"
        " (SELECT count(*) FROM holdfast.dead_letters WHERE original_topic = 'imports'"
        "  AND last_error LIKE 'Timeout%') AS letters"
        " FROM holdfast.lease_events WHERE at >= $1::date AND at < $2::date",
        first,
        until,
    )
    return dict(row)


async def payloads(world: World, topic: str) -> list[str]:
    rows = await world.rows(
        f"SELECT convert_from(payload, 'UTF8') FROM holdfast.jobs WHERE topic = '{topic}' ORDER BY seq"
    )
    return [text for (text,) in rows]
