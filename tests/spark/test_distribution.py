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

import pyspark
import pytest

from spark import pipelines
from spark.session import PACKAGE, driver_jar, zipped
from tests.spark.conftest import QUICK, UNCOMPILED, Lived, serving
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
        assert ran.returncode == 0, [line for line in ran.stderr.splitlines() if " INFO " not in line][-60:]
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
    async with serving(await empty_database(urlsplit(lived.dsn).path[1:])) as world:
        yield world


@pytest.mark.slow
@pytest.mark.timeout(SECONDS + 60)
async def test_every_pipeline_on_a_cluster(tmp_path: Path, world: World, lived: Lived) -> None:
    """Over a ledger that lacks one row: an ack's."""
    first, until = await shift(world.pools.rest), datetime.now(UTC).date()
    [(lost,)] = await world.rows(
        "DELETE FROM holdfast.lease_events e USING (SELECT min(seq) AS seq FROM holdfast.lease_events"
        " WHERE topic = 'renders' AND event = 'acked') x WHERE e.topic = 'renders' AND e.seq = x.seq"
        " AND e.event = 'acked' RETURNING e.seq"
    )
    for topic in "ingested", "replayed":
        await world.topic(topic)
    await tell(world.pools, since="3 days")
    told_before = await world.rows(STATS)
    await world.rows("DELETE FROM holdfast.topic_stats WHERE topic = 'mail'")
    [(reports, letters)] = await world.rows(
        "SELECT (SELECT count(*) FROM holdfast.archive WHERE topic = 'reports'), (SELECT count(*) FROM"
        " holdfast.dead_letters WHERE original_topic = 'imports' AND last_error LIKE 'Timeout%')"
    )
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

    assert {name: one["code"] for name, one in told.items()} == dict.fromkeys(pipelines.PIPELINES, 0) | {"audit": 1}
    said: dict[str, list[str]] = {name: one["said"] for name, one in told.items()}
    assert await world.payloads("ingested") == [f'{{"n": {n}}}' for n in range(50)]
    assert {table for table, _, rows in await world.marks() if rows} == {"archive", "lease_events", "results"}
    assert len(await world.payloads("replayed")) == reports > 0
    assert await world.rows(STATS) == told_before
    assert said["redrive"][-1] == f"requeued {letters:,}, skipped 0, failed again 0"
    assert said["audit"][0].startswith(f"{lived.events - 1:,} events of ")
    assert said["audit"][1] == "1 counterexample: lost 1"
    assert said["audit"][3] == f"lost: job {lost} of renders is missing, and no event ended it"
    for name in "failures", "forecast":
        assert (tmp_path / name).stat().st_size > 0
        assert json.loads((tmp_path / f"{name}.json").read_text())


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
