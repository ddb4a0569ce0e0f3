"""Dead letters that an expression selects go back: those and no others, a few first, and never twice."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from pyspark.sql import SparkSession

from spark.errors import Mistake
from spark.http_api import Service
from spark.pipelines import redrive
from spark.pipelines.redrive import Pace
from spark.progress import Progress
from tests.launch import call, services
from tests.processes import until
from tests.sdk.proxy import Proxy
from tests.spark.past import run

ROOT = Path(__file__).parents[2]
CAUTIOUS = {"first": 5, "stop_at_percent": 20, "timeout_ms": 60_000}
INTERRUPTED = """
import sys
from spark.pipelines.redrive import Pace, load
from spark.progress import Progress
from spark.http_api import Service
with Progress("test", 20) as progress:
    load(Service(sys.argv[1]), sys.argv[2], range(1, 21), Pace(rate=1), progress)
"""


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory, database_url: str) -> Iterator[str]:
    with services(tmp_path_factory.mktemp("service")) as serve:
        yield serve(DATABASE_URL=database_url).up()


@pytest.fixture
def died(url: str, topic: str) -> Callable[..., None]:
    """Jobs of the test's topic that went out: `(data, deliveries, error)` each, whose seqs begin at 1."""

    def die(jobs: list[tuple[Any, int, str]]) -> None:
        config = {"type": "queue", "durable": True, "max_deliveries": 1, "dead_letter": f"{topic}.dead"}
        call(f"{url}/v0/topics/{topic}", "PUT", config)
        records = [{"data": data, "max_deliveries": tries} for data, tries, _ in jobs]
        call(f"{url}/v0/topics/{topic}", "POST", {"records": records})
        until(lambda: nack(url, topic, lambda seq: jobs[seq - 1][2]) == 0)
        assert depth(url, topic) == 0
        assert depth(url, f"{topic}.dead") == len(jobs)

    return die


def nack(url: str, topic: str, error: Callable[[int], str]) -> int:
    """Claim what there is, and give it back with an error."""
    claimed = call(f"{url}/v0/topics/{topic}/claim", "POST", {"node": "w", "max": 1000})["claimed"]
    seqs = [job["$seq"] for job in claimed]
    if seqs:
        body = {"node": "w", "seqs": seqs, "errors": [error(seq) for seq in seqs]}
        call(f"{url}/v0/topics/{topic}/nack", "POST", body)
    return len(seqs)


def depth(url: str, topic: str) -> int:
    found = call(f"{url}/v0/topics/{topic}")
    return int(found["queue"]["ready"])


def put_back(url: str, topic: str, seqs: range, pace: Pace) -> redrive.Outcome:
    with Progress("test", len(seqs)) as progress:
        outcome = redrive.load(Service(url), topic, seqs, pace, progress)
    assert progress.done == outcome.requeued + outcome.skipped
    return outcome


async def test_those_that_fit_go_back_and_no_others(
    spark: SparkSession, url: str, topic: str, database_url: str, *,
    died: Callable[..., None], capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    died(
        [
            ({"user": "ann"}, 1, "timeout after 30 s"),
            ({"user": "ann"}, 2, "timeout after 31 s"),
            ({"user": "bob"}, 2, "timeout after 32 s"),
            ({"user": "ann"}, 2, "no such address"),
            ("no object", 2, "timeout after 33 s"),
        ]
    )
    died_of = "last_error LIKE '%timeout%' AND deliveries > 1 AND get_json_object(data, '$.user') = 'ann'"
    words = ["--topic", topic, "--url", url, "--where", died_of]

    assert await run(redrive, spark, database_url, *words, "--dry-run") == 0
    said = capsys.readouterr().out.splitlines()
    assert said == [f"1 dead letters of {topic} where {died_of}", "           1  timeout after 31 s"]
    assert depth(url, topic) == 0
    assert await run(redrive, spark, database_url, *words, "--canary", "0") == 0
    assert capsys.readouterr().out.splitlines()[-1] == "requeued 1, skipped 0, failed again 0"
    claimed = call(f"{url}/v0/topics/{topic}/claim", "POST", {"node": "w", "max": 9})["claimed"]
    assert [job["$seq"] for job in claimed] == [2]
    assert await run(redrive, spark, database_url, *words) == 0
    assert capsys.readouterr().out.splitlines()[0] == f"0 dead letters of {topic} where {died_of}"
    with pytest.raises(Mistake, match="--where nonsense"):
        redrive.select(redrive.extract(spark, database_url, Service(url), topic), "nonsense")


def test_where_the_first_fail_again_the_rest_stays_and_many_go_in_several_operations(
    url: str, topic: str, died: Callable[..., None]
) -> None:
    died([(n, 1, "timeout") for n in range(1001)])
    worker = Thread(target=until, args=(lambda: nack(url, topic, lambda _: "timeout again"),))
    worker.start()
    outcome = put_back(url, topic, range(1, 1002), Pace(canary=CAUTIOUS))
    worker.join()
    assert (outcome.requeued, outcome.failed_again) == (5, 5)
    assert outcome.reason is not None
    assert (depth(url, topic), depth(url, f"{topic}.dead")) == (0, 1001)

    for requeued in 1001, 0:  # again changes nothing
        outcome = put_back(url, topic, range(1, 1002), Pace(rate=100_000))
        assert outcome.requeued == requeued
        assert depth(url, topic) == 1001


def test_ctrl_c_cancels_what_is_under_way(url: str, topic: str, died: Callable[..., None]) -> None:
    died([(n, 1, "timeout") for n in range(20)])
    driver = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED, url, topic],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stderr=subprocess.PIPE,
        text=True,
    )
    until(lambda: depth(url, topic) > 0)
    driver.send_signal(signal.SIGINT)
    _, said = driver.communicate(timeout=30)
    assert "cancelled; requeued" in said
    back = depth(url, topic)
    assert 0 < back < 20
    assert depth(url, f"{topic}.dead") == 20 - back


def test_what_the_service_refuses_is_said(url: str, topic: str) -> None:
    with pytest.raises(Mistake, match="404 There is no topic"):
        put_back(url, topic, range(1, 2), Pace())
    outcome = put_back("http://127.0.0.1:1", topic, range(1, 2), Pace())
    assert "http://127.0.0.1:1/" in str(outcome.reason)


async def test_answers_that_are_lost_on_the_way_are_asked_for_again(
    url: str, topic: str, died: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    await asyncio.to_thread(died, [(n, 1, "timeout") for n in range(3)])
    async with Proxy(url) as proxy:
        for _ in range(2):
            proxy.lose("GET ")
        outcome = await asyncio.to_thread(put_back, proxy.url, topic, range(1, 4), Pace())
    assert (outcome.requeued, outcome.reason, outcome.goes_on) == (3, None, None)
    assert capsys.readouterr().err.count("retrying") == 1


async def test_an_operation_that_may_go_on_unheard_is_told_of(
    spark: SparkSession, url: str, topic: str, database_url: str, *,
    died: Callable[..., None], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(redrive, "PATIENCE_SECONDS", 0.5)
    await asyncio.to_thread(died, [(n, 1, "timeout") for n in range(200)])
    words = ["--topic", topic, "--canary", "0"]
    async with Proxy(url) as proxy:
        slowly = run(redrive, spark, database_url, *words, "--url", proxy.url, "--rate", "1")
        running = asyncio.create_task(slowly)
        await asyncio.to_thread(until, lambda: depth(url, topic) > 0, 30)
    assert await running == 1
    said = capsys.readouterr().out
    assert "were not requeued by the last known state" in said
    [operation] = re.findall(r"GET \S+/v0/operations/(\S+) shows its progress", said)
    state = call(f"{url}/v0/operations/{operation}")
    assert (state["state"], state["ended_at"]) == ("running", None)
    call(f"{url}/v0/operations/{operation}/cancel", "POST", {})

    # And one whose beginning was not heard of.
    async with Proxy(url) as proxy:
        proxy.lose("POST ")
        assert await run(redrive, spark, database_url, *words, "--url", proxy.url, "--rate", "100000") == 1
    said = capsys.readouterr().out
    assert "were not requeued by the last known state" in said
    assert f"FROM holdfast.operations WHERE topic = '{topic}' AND ended_at IS NULL" in said
    await asyncio.to_thread(until, lambda: depth(url, topic) == 200, 30)


def test_the_key_goes_nowhere_else(topic: str) -> None:
    keys: list[str | None] = []

    class Elsewhere(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            keys.append(self.headers["authorization"])
            self.send_response(302)
            self.send_header("location", f"http://localhost:{self.headers['host'].partition(':')[2]}/login")
            self.end_headers()

        do_POST = do_GET  # noqa: N815

    with ThreadingHTTPServer(("127.0.0.1", 0), Elsewhere) as server:
        Thread(target=server.serve_forever).start()
        service = Service(f"http://127.0.0.1:{server.server_address[1]}", "secret")
        with pytest.raises(
            Mistake, match=r"302, it redirects to http://localhost:\d+/login\. The key is not sent there"
        ):
            service.get("v0", "topics", topic)
        with pytest.raises(Mistake, match="302, it redirects"):
            service.post("v0", "topics", topic, "requeue")
        server.shutdown()
    assert keys == ["Bearer secret"] * 2
