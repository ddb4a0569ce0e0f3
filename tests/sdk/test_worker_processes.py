"""Workers as processes, which are killed, stopped for longer than their leases, and told to end, under load and beside
a service and a PostgreSQL that are killed too. Nothing is lost, and nothing is acked by whom it no longer belongs to.

HOLDFAST_TEST_WORKER_JOBS: how many jobs (1,500; `make workers` does 100,000).
"""

from __future__ import annotations

import asyncio
import contextvars
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from itertools import cycle
from pathlib import Path
from typing import Any, Final

import asyncpg
import pytest

from app.base.db.embedded import EmbeddedPostgres
from holdfast import AsyncClient, AsyncTopic, Isolation, Queue
from holdfast._client import account_of
from holdfast._worker import calls
from holdfast._worker.child import Order, perform, perform_alone
from holdfast._worker.outcomes import Judged, Verdict
from tests.conftest import Running
from tests.launch import Service
from tests.processes import until
from tests.sdk import worker_program
from tests.sdk.workers import outcome, suspected, working

ROOT: Final = Path(__file__).parents[2]
JOBS: Final = int(os.environ.get("HOLDFAST_TEST_WORKER_JOBS", "1500"))
LEASE: Final = 1.5


@pytest.fixture
async def process(tmp_path: Path) -> AsyncIterator[Service]:
    process = Service(tmp_path)
    yield process
    await asyncio.to_thread(process.stop)


class WorkerProcess:
    """`holdfast worker`, which is begun anew when it has ended."""

    def __init__(self, url: str, topic: str, log: Path) -> None:
        self._env = {
            **os.environ,
            **{"HOLDFAST_URL": url, "HOLDFAST_TEST_TOPIC": topic, "PYTHONPATH": f"{ROOT}:{ROOT / 'sdk/src'}"},
        }
        self.log = log
        self._starts = 0
        self.start()

    def start(self) -> None:
        command = ["-m", "holdfast", "worker", "tests.sdk.worker_program:queue", f"--lease={LEASE}"]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen([sys.executable, *command], cwd=ROOT, env=self._env, stderr=log)
        self._starts += 1

    def hears(self) -> bool:
        """Whether it has come so far that it hears signals."""
        return self.log.read_text().count("The worker runs") == self._starts

    def end(self, kind: signal.Signals) -> int:
        self.process.send_signal(kind)
        return self.process.wait(30)


@pytest.mark.alone
async def test_workers_and_service_die_in_every_way(process: Service, topic: str, tmp_path: Path) -> None:
    url = await asyncio.to_thread(process.up)
    async with AsyncClient(url, timeout=60, retries=100) as client:
        queue = client.topic(topic)
        await queue.put()
        put = await fill(queue)
        workers = [WorkerProcess(url, topic, tmp_path / f"worker{i}") for i in range(2)]
        hit = dict.fromkeys(("kill", "stop", "term", "service", "postgres"), 0)
        try:
            for i, how in enumerate(cycle(hit)):
                worker = workers[(i + i // len(hit)) % len(workers)]  # each of them is hit in every way
                if await progressed(queue) == 0:
                    if min(hit.values()):
                        break
                    put += await fill(queue)  # they were quicker than what was to hit them
                await asyncio.to_thread(until, worker.hears, 60)
                hit[how] += 1
                match how:
                    case "kill":
                        await asyncio.to_thread(worker.end, signal.SIGKILL)
                        worker.start()
                    case "stop":
                        worker.process.send_signal(signal.SIGSTOP)
                        await asyncio.sleep(2 * LEASE)
                        worker.process.send_signal(signal.SIGCONT)
                    case "term":
                        assert await asyncio.to_thread(worker.end, signal.SIGTERM) == 0
                        worker.start()
                    case "service":
                        await kill(process, process.server)
                    case "postgres":
                        await kill(process, process.postgres)
            for worker in workers:
                await asyncio.to_thread(until, worker.hears, 60)
            codes = [await asyncio.to_thread(worker.end, signal.SIGTERM) for worker in workers]
        finally:
            for worker in workers:
                worker.process.kill()
                worker.process.wait()
    said = "".join(worker.log.read_text() for worker in workers)
    assert codes == [0, 0], said
    assert "lost" in said, "a stop was longer than a lease"
    assert await ledger_faults(tmp_path / "data", topic, put) == []


async def fill(queue: AsyncTopic) -> int:
    """Put JOBS in, and say so."""
    for at in range(0, JOBS, 1_000):
        await queue.enqueue_many(range(at, min(at + 1_000, JOBS)))
    return JOBS


async def progressed(queue: AsyncTopic) -> int:
    """How many jobs are left, after a while in which some were done."""
    async with asyncio.timeout(120):
        began = left = await live(queue)
        while left and left > began - JOBS // 20:
            await asyncio.sleep(0.05)
            left = await live(queue)
    return left


async def live(queue: AsyncTopic) -> int:
    return (await queue.get(touch=False)).count


async def kill(process: Service, part: Callable[[], int | None]) -> None:
    """It is started again by its supervisor."""
    pid = await asyncio.to_thread(until, part, 60, or_show=lambda: process.words)
    assert pid
    os.kill(pid, signal.SIGKILL)


async def ledger_faults(data: Path, topic: str, put: int) -> list[Any]:
    """Jobs that were not acked exactly once, as the last thing that happened to them, by the lease of their last
    claim; and how many are missing."""
    postgres = EmbeddedPostgres(data)  # which runs
    connection = await asyncpg.connect(await asyncio.to_thread(postgres.start))
    try:
        rows = await connection.fetch(
            """
            SELECT seq, array_agg(event::text ORDER BY tx, at) AS events,
                   array_agg(lease_id ORDER BY tx, at) FILTER (WHERE event IN ('claimed', 'acked')) AS leases
            FROM holdfast.lease_events WHERE topic = $1 GROUP BY seq
            """,
            topic,
        )
    finally:
        await connection.close()
    faults: list[Any] = [] if len(rows) == put else [f"{len(rows)} jobs"]
    for row in rows:
        acked_last = row["events"].count("acked") == 1 and row["events"][-1] == "acked"
        if not acked_last or row["leases"][-1] != row["leases"][-2]:
            faults.append(dict(row))
    return faults


@pytest.mark.parametrize(
    ("what", "state", "error"),
    [
        ("nothing", "completed", None),
        ("kill", "failed", "suspected of killing its workers; alone it ended with -9"),
        ("take time", "failed", "suspected of killing its workers; alone it took longer than 3 s"),
        ("take memory", "failed", "MemoryError: "),
    ],
)
async def test_a_suspected_pill_is_alone(
    queue: AsyncTopic, handlers: Queue, what: str, state: str, error: str | None
) -> None:
    handlers.handler(queue.name, isolate=Isolation(100, 3 if what == "take time" else 60), retry=())(
        worker_program.pill
    )
    seq = await suspected(queue, what)
    async with working(handlers):
        end = await outcome(queue, seq)
    assert (end.state, end.error) == (state, error)


async def test_a_pool_of_processes(queue: AsyncTopic, handlers: Queue) -> None:
    handlers.handler(queue.name, pool="process", concurrency=1)(worker_program.whose_process)
    seqs = (await queue.enqueue_many(range(3))).seqs
    async with working(handlers):
        ends = [await outcome(queue, seq) for seq in seqs]
    assert {end.state for end in ends} == {"completed"}
    assert len({end.result for end in ends} | {os.getpid()}) == 2


async def neighbours(queue: AsyncTopic, folder: Path) -> list[int]:
    """Two jobs that run beside each other; the first kills its process."""
    return list((await queue.enqueue_many([[str(folder), "killer", "other"], [str(folder), "other", "killer"]])).seqs)


async def test_a_process_of_a_pool_that_dies_has_a_suspect(queue: AsyncTopic, handlers: Queue, tmp_path: Path) -> None:
    handlers.handler(queue.name, pool="process", concurrency=2, retry=(), isolate=Isolation())(worker_program.neighbour)
    killer, other = await neighbours(queue, tmp_path)
    async with working(handlers):
        end, innocent = await outcome(queue, killer), await outcome(queue, other)
    assert (end.state, end.error) == ("failed", "suspected of killing its workers; alone it ended with -9")
    assert (innocent.state, innocent.result) == ("completed", [1, "in the pool"]), "it was not touched"


async def test_a_process_of_a_pool_that_dies_is_a_failure(queue: AsyncTopic, handlers: Queue, tmp_path: Path) -> None:
    handlers.handler(queue.name, pool="process", concurrency=2, retry=())(worker_program.neighbour)
    killer, other = await neighbours(queue, tmp_path)
    async with working(handlers):
        end, innocent = await outcome(queue, killer), await outcome(queue, other)
    assert (end.state, end.result) == ("completed", [2, "in the pool"])
    assert (innocent.state, innocent.result) == ("completed", [1, "in the pool"]), "it was not touched"


def order_of(data: Any) -> Order:
    body = {"$seq": 1, "lease_id": "", "deliveries": 1}
    return Order(
        worker_program.pill, "none", data, body, None, account_of("http://127.0.0.1:1", None, None), None, None
    )


def test_a_cancellation_ends_a_process_that_is_being_started() -> None:
    pickled = worker_program.Pickled("take time")

    async def cancelled() -> None:
        task = asyncio.create_task(calls._alone(order_of(pickled), Isolation()))
        await asyncio.to_thread(pickled.begun.wait, 30)
        task.cancel()
        await asyncio.sleep(0)  # it has reached the task
        pickled.go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancelled())  # which waits for its threads
    assert not [child for child in multiprocessing.active_children() if child.name == "holdfast-none"]


@pytest.mark.parametrize(("what", "error"), [("leave", "SystemExit: 3"), ("cancel", "CancelledError: ")])
def test_a_handler_that_ends_more_than_itself_is_no_pill(what: str, error: str) -> None:
    made = contextvars.copy_context().run(perform, order_of(what))
    assert made == Judged(Verdict("nack"), error)


def test_a_process_that_lets_no_thread_run_ends_without_its_worker() -> None:
    answers, said = calls.SPAWN.Pipe(duplex=False)
    process = calls.SPAWN.Process(target=perform_alone, args=(order_of("keep the lock"), 2**29, 0.5, said))
    process.start()
    process.join(60)
    process.kill()
    answers.close()
    said.close()
    assert process.exitcode == -signal.SIGALRM


async def test_a_blocked_loop_costs_no_lease_and_is_reported(
    service: Running, queue: AsyncTopic, caplog: pytest.LogCaptureFixture
) -> None:
    """The service is in this process, so the worker has a loop of its own."""
    counts: list[int] = []

    async def work() -> None:
        async with Queue(service.url) as handlers:

            @handlers.handler(queue.name)
            async def handler(_: Any) -> None:
                counts.append(1)
                time.sleep(4)

            await handlers.client.topic(queue.name).enqueue(1)
            async with working(handlers, lease=LEASE):
                while not counts:
                    await asyncio.sleep(0.01)

    await asyncio.to_thread(asyncio.run, work())
    assert counts == [1]
    history = (await queue.history(1)).events
    assert [event.event for event in history if event.event in ("claimed", "acked")] == ["claimed", "acked"]
    reports = [record.getMessage() for record in caplog.records if "blocked" in record.getMessage()]
    assert any("time.sleep(4)" in report for report in reports), "its stack says where"


async def test_the_command_says_what_is_wrong() -> None:
    for target, why in (
        ("nowhere:queue", "no module nowhere"),
        ("json:nothing", "has no nothing"),
        ("x", "of the form"),
    ):
        ran = await asyncio.to_thread(
            subprocess.run,
            [sys.executable, "-m", "holdfast", "worker", target],
            env={**os.environ, "PYTHONPATH": str(ROOT / "sdk/src"), "COLUMNS": "200"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert ran.returncode == 2
        assert why in ran.stderr
