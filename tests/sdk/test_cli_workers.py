"""`holdfast worker` as a process, which ends whatever its handlers do. With --processes N --reload workers that die are
replaced, the parent's death ends them, signals reach them once, and sources that change begin them anew."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from holdfast import AsyncTopic
from holdfast._cli.session import Exit
from tests.conftest import Running
from tests.processes import children, lives, until
from tests.sdk.cli import Cli, command, environment
from tests.sdk.workers import outcome, suspected

HANDLERS = """
import os, time
from holdfast import Queue, Result

queue = Queue()

@queue.handler(os.environ["HOLDFAST_TEST_TOPIC"], concurrency=1)
def handler(seconds: float) -> Result:
    time.sleep(seconds)
    return Result("as it was")
"""


class Parent:
    """A `holdfast worker` with workers below it."""

    def __init__(self, folder: Path, url: str, topic: str, *words: str) -> None:
        self.folder = folder
        self.log = folder / "log"
        env = environment({"HOLDFAST_URL": url, "HOLDFAST_TEST_TOPIC": topic})
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                command("worker", "tasks:queue", "--lease=60", *words),
                cwd=folder,
                env=env,
                stderr=log,
                start_new_session=True,
            )

    async def said(self, words: str, times: int = 1) -> None:
        await asyncio.to_thread(
            until, lambda: self.log.read_text().count(words) >= times, 60, or_show=self.log.read_text
        )

    def workers(self) -> list[int]:
        return children(self.process.pid, "--supervised")

    async def ended(self) -> int:
        return await asyncio.to_thread(self.process.wait, 120)


Begin = Callable[..., Parent]


@pytest.fixture
def begin(service: Running, queue: AsyncTopic, tmp_path: Path) -> Iterator[Begin]:
    """Begins parents, which are gone after the test, and so are their workers."""
    begun: list[Parent] = []

    def begin(*words: str, handlers: str = HANDLERS, topic: str = queue.name) -> Parent:
        (tmp_path / "tasks.py").write_text(handlers)
        begun.append(Parent(tmp_path, service.url, topic, *words))
        return begun[-1]

    yield begin
    for parent in begun:
        workers = parent.workers()
        parent.process.kill()
        parent.process.wait(30)
        for pid in workers:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


async def until_leased(queue: AsyncTopic, seq: int) -> None:
    async with asyncio.timeout(60):
        while (await queue.job(seq)).state != "leased":
            await asyncio.sleep(0.02)


async def test_workers_that_die_are_replaced_and_signals_reach_them_once(begin: Begin, queue: AsyncTopic) -> None:
    parent = begin("--processes=2")
    await parent.said("The worker runs", 2)
    first, second = parent.workers()
    os.kill(first, signal.SIGKILL)
    await parent.said(f"Worker process {first} ended with exit code -9. Restarting it in 0.5 s")
    await parent.said("The worker runs", 3)
    assert second in parent.workers()
    assert len(parent.workers()) == 2
    assert (await outcome(queue, (await queue.enqueue(0)).seq)).state == "completed"

    long = (await queue.enqueue(600)).seq
    await until_leased(queue, long)
    os.killpg(parent.process.pid, signal.SIGINT)  # as a terminal's Ctrl-C
    await parent.said("The worker stops when its running jobs have finished", 2)
    assert "gives back" not in parent.log.read_text()
    assert (await queue.job(long)).state == "leased", "it is let come to its end"
    parent.process.send_signal(signal.SIGTERM)
    assert await parent.ended() == Exit.DONE
    assert (await queue.job(long)).state == "ready", "it was given back"
    assert "returns its running jobs" in parent.log.read_text()


async def test_a_source_that_changes(begin: Begin, queue: AsyncTopic) -> None:
    parent = begin("--reload")
    await parent.said("The worker runs")
    assert (await outcome(queue, (await queue.enqueue(0)).seq)).result == "as it was"
    [old] = parent.workers()
    source = parent.folder / "tasks.py"
    source.write_text(source.read_text().replace("as it was", "changed"))
    await parent.said("tasks.py changed: restarting the workers")
    await parent.said("The worker runs", 2)
    assert (await outcome(queue, (await queue.enqueue(0)).seq)).result == "changed"
    assert old not in parent.workers()

    source.write_text("raise RuntimeError('half an edit')")
    await parent.said("half an edit")
    source.write_text(HANDLERS)
    await parent.said("The worker runs", 3)

    [worker] = parent.workers()
    parent.process.kill()
    await asyncio.to_thread(until, lambda: not lives(worker), 60)
    assert parent.log.read_text().endswith("The worker stops when its running jobs have finished\n"), (
        "it was not killed: it drained"
    )


@pytest.mark.parametrize(
    ("handlers", "words", "code"),
    [
        pytest.param("raise RuntimeError('broken')", "Giving up", 1, marks=pytest.mark.slow),
        ("queue = 1", "must be a Queue, not a int", Exit.USAGE),
    ],
)
async def test_workers_that_all_die_at_once(begin: Begin, handlers: str, words: str, code: int) -> None:
    parent = begin("--processes=2", handlers=handlers)
    assert await parent.ended() == code
    assert words in parent.log.read_text()


async def test_the_command_says_what_is_wrong(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    for target, why in (
        ("nowhere:queue", "no module nowhere"),
        ("json:nothing", "has no nothing"),
        ("x", "must have the form"),
    ):
        assert why in " ".join((await cli("worker", target, code=Exit.USAGE)).err.replace("│", "").split())


BLOCKED = """
import asyncio, os, time
from holdfast import Queue

class Mine(Queue):
    @property
    def client(self):
        if "broken" in os.environ["HOLDFAST_TEST_TOPIC"]:
            asyncio.get_running_loop().run_in_executor(None, time.sleep, 600)
            raise RuntimeError("a fault")
        return super().client

queue = Mine()

@queue.handler(os.environ["HOLDFAST_TEST_TOPIC"], concurrency=50)
async def handler(seconds: float) -> None:
    await asyncio.to_thread(time.sleep, seconds)
"""


async def test_threads_of_async_handlers_do_not_outlive_a_second_signal(begin: Begin, queue: AsyncTopic) -> None:
    parent = begin(handlers=BLOCKED)
    seqs = (await queue.enqueue_many([600] * 50)).seqs  # more than the loop has threads
    for seq in seqs:
        await until_leased(queue, seq)
    await parent.said("The worker runs")
    parent.process.send_signal(signal.SIGTERM)
    await parent.said("The worker stops when its running jobs have finished")
    parent.process.send_signal(signal.SIGTERM)
    assert await parent.ended() == Exit.DONE
    assert {(await queue.job(seq)).state for seq in seqs} == {"ready"}, "they were given back"


async def test_a_worker_that_fails_ends_in_spite_of_threads(begin: Begin) -> None:
    parent = begin(handlers=BLOCKED, topic="broken")
    assert await parent.ended() == 1
    assert "RuntimeError: a fault" in parent.log.read_text()


IN_PROCESSES = """
import os, time
from pathlib import Path
from holdfast import Isolation, Queue, Result

queue = Queue()

@queue.handler(
    os.environ["HOLDFAST_TEST_TOPIC"], pool="process", concurrency=2, retry=(), isolate=Isolation(seconds=200)
)
def handler(name: str) -> Result:
    Path(name).write_text(str(os.getpid()))
    for _ in range(2000):
        if Path("go").exists():
            break
        time.sleep(0.1)
    return Result("done")
"""


@pytest.mark.parametrize(
    "kind",
    [
        signal.SIGTERM,
        pytest.param(signal.SIGINT, marks=pytest.mark.slow),
        pytest.param(signal.SIGKILL, marks=pytest.mark.slow),
    ],
)
async def test_jobs_in_processes_when_their_worker_ends(begin: Begin, queue: AsyncTopic, kind: signal.Signals) -> None:
    """Ctrl-C lets them come to their end; SIGTERM to all processes costs them nothing; and no process outlives its
    worker, in a pool or alone."""
    seqs = [await suspected(queue, "alone"), (await queue.enqueue("pooled")).seq]
    parent = begin(handlers=IN_PROCESSES)
    await parent.said("The worker runs")
    pids = []
    for file in (parent.folder / "alone", parent.folder / "pooled"):
        await asyncio.to_thread(until, lambda file=file: file.exists() and file.read_text(), 60)
        pids.append(int(file.read_text()))
    leased = [await queue.job(seq) for seq in seqs]
    if kind is signal.SIGKILL:
        parent.process.kill()
    else:
        os.killpg(parent.process.pid, kind)
    if kind is signal.SIGINT:
        await parent.said("The worker stops when its running jobs have finished")
        (parent.folder / "go").touch()
        assert await parent.ended() == Exit.DONE
        assert [(await outcome(queue, seq)).result for seq in seqs] == ["done", "done"]
    if kind is signal.SIGTERM:
        assert await parent.ended() == Exit.DONE
        jobs = [await queue.job(seq) for seq in seqs]
        assert [job.state for job in jobs] == ["ready", "ready"], parent.log.read_text()
        assert [job.deliveries for job in jobs] == [job.deliveries - 1 for job in leased]
    await asyncio.to_thread(until, lambda: not [pid for pid in pids if lives(pid)], 60)
