"""The same on a cluster: executors in processes of their own, in folders of their own, without the project."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from urllib.parse import urlsplit

import asyncpg
import pyspark
import pytest

from spark.session import PACKAGE, zipped
from tests.spark.conftest import Lived

HERE = Path(__file__).parent
SECONDS = 280  # some 25 on a machine that does nothing else
QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"  # JVMs that live for seconds
SETTINGS = (
    "spark.ui.enabled=false",
    "spark.sql.shuffle.partitions=2",
    "spark.driver.host=127.0.0.1",
    f"spark.driver.extraJavaOptions={QUICK}",
    f"spark.executor.extraJavaOptions={QUICK}",
)


class Submit:
    """spark-submit as on a machine that has Spark and the packages, and of this project nothing but two files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "elsewhere"
        self.folder.mkdir()
        self.zip = zipped(folder)
        # Workers of local-cluster keep their files in Spark's own folder.
        self.home = folder / "spark-home"
        self.home.mkdir()
        for entry in Path(pyspark.__path__[0]).iterdir():
            (self.home / entry.name).symlink_to(entry)

    async def run(self, master: str, script: Path, *words: str) -> subprocess.CompletedProcess[str]:
        shutil.copy(script, self.folder)
        command = [str(self.home / "bin/spark-submit"), "--master", master, "--py-files", str(self.zip)]
        for setting in SETTINGS:
            command += ["--conf", setting]
        mine = {"SPARK_HOME": str(self.home), "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
        kept = {name: value for name, value in os.environ.items() if name in ("PATH", "HOME", "JAVA_HOME")}
        return await asyncio.to_thread(
            subprocess.run, [*command, script.name, *words], cwd=self.folder, env=kept | mine, capture_output=True,
            text=True, timeout=SECONDS, check=False,
        )  # fmt: skip


@pytest.fixture
async def copy(lived: Lived, empty_database: Callable[..., Awaitable[str]]) -> str:
    """The mixed load's database, to write to."""
    return await empty_database(urlsplit(lived.dsn).path[1:])


async def test_read_transform_write_and_audit_on_a_cluster(tmp_path: Path, copy: str, lived: Lived) -> None:
    """Of a ledger that lacks one row: an ack's."""
    database = await asyncpg.connect(copy)
    reports = await database.fetchval("SELECT count(*) FROM holdfast.archive WHERE topic = 'reports'")
    seq = await database.fetchval(
        "DELETE FROM holdfast.lease_events e USING (SELECT min(seq) AS seq FROM holdfast.lease_events"
        " WHERE topic = 'renders' AND event = 'acked') x WHERE e.topic = 'renders' AND e.seq = x.seq"
        " AND e.event = 'acked' RETURNING e.seq"
    )
    submit = Submit(tmp_path)
    ran = await submit.run("local-cluster[2,1,1024]", HERE / "on_a_cluster.py", copy)
    assert ran.returncode == 1, ran.stderr[-5000:]
    # spark-submit puts what is for the terminal among what is for a file.
    first, *report = [line for line in ran.stdout.splitlines() if not line.startswith("audited events")]
    told = json.loads(first.removeprefix("told: "))
    assert told["master"] == "local-cluster[2,1,1024]"
    assert len({folder for folder, *_ in told["workers"]}) == 2, "both executors have worked"
    for folder, path, package, has_the_service in told["workers"]:
        assert folder.startswith(str(submit.home))
        assert str(PACKAGE.parent) not in path.replace(str(PACKAGE.parent / ".venv"), "")
        assert not package.startswith(str(PACKAGE))
        assert ".zip" in package
        assert not has_the_service
    written = await database.fetchval("SELECT count(*) FROM holdfast.jobs WHERE topic = 'mail' AND tag = 'again'")
    await database.close()
    assert written == reports > 0
    assert report[0].startswith(f"{lived.events - 1 + written:,} events of ")
    assert report[1] == "1 counterexample: lost 1"
    assert report[3] == f"lost: job {seq} of renders is not there, and no event ended it"
    assert report[-1].startswith("> ")
