"""`holdfast worker` as a process, which ends whatever its handlers do. With --processes N --reload workers that die are
replaced, the parent's death ends them, signals reach them once, and sources that change begin them anew."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from holdfast import AsyncTopic
from holdfast._cli.session import Exit
from tests.conftest import Running
from tests.processes import children, lives, until
from tests.sdk.cli import command, environment
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


async def state_of(queue: AsyncTopic, seq: int) -> str:
    return (await queue.job(seq)).state


async def test_workers_that_die_are_replaced_and_signals_reach_them_once(begin: Begin, queue: AsyncTopic) -> None:
    parent = begin("--processes=2")
    await parent.said("The worker runs", 2)
    first, second = parent.workers()
    os.kill(first, signal.SIGKILL)
    await parent.said(f"Worker process {first} ended with -9; another begins in 0.5 s")
    await parent.said("The worker runs", 3)
    assert second in parent.workers()
    assert len(parent.workers()) == 2
    assert (await outcome(queue, (await queue.enqueue(0)).seq)).state == "completed"

    long = (await queue.enqueue(600)).seq
    await eventually(queue, long, "leased")
    os.killpg(parent.process.pid, signal.SIGINT)  # as a terminal's Ctrl-C
    await parent.said("The worker stops when what it runs is done", 2)
    assert "gives back" not in parent.log.read_text()
    assert await state_of(queue, long) == "leased", "it is let come to its end"
    parent.process.send_signal(signal.SIGTERM)
    assert await parent.ended() == Exit.DONE
    assert await state_of(queue, long) == "ready", "it was given back"
    assert "gives back what it runs" in parent.log.read_text()


async def test_a_source_that_changes(begin: Begin, queue: AsyncTopic) -> None:
    parent = begin("--reload")
    await parent.said("The worker runs")
    assert (await outcome(queue, (await queue.enqueue(0)).seq)).result == "as it was"
    [old] = parent.workers()
    source = parent.folder / "tasks.py"
    source.write_text(source.read_text().replace("as it was", "changed"))
    await parent.said("tasks.py changed: the workers begin anew")
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
    assert parent.log.read_text().endswith("The worker stops when what it runs is done\n"), (
        "it was not killed: it drained"
    )


@pytest.mark.parametrize(
    ("handlers", "words", "code"),
    [
        ("raise RuntimeError('broken')", "it makes no sense to go on", 1),
        ("queue = 1", "is a int, and no Queue", Exit.USAGE),
    ],
)
async def test_workers_that_all_die_at_once(begin: Begin, handlers: str, words: str, code: int) -> None:
    parent = begin("--processes=2", handlers=handlers)
    assert await parent.ended() == code
    assert words in parent.log.read_text()


async def eventually(queue: AsyncTopic, seq: int, state: str) -> None:
    async with asyncio.timeout(60):
        while await state_of(queue, seq) != state:
            await asyncio.sleep(0.02)


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
        await eventually(queue, seq, "leased")
    await parent.said("The worker runs")
    parent.process.send_signal(signal.SIGTERM)
    await parent.said("The worker stops when what it runs is done")
    parent.process.send_signal(signal.SIGTERM)
    assert await parent.ended() == Exit.DONE
    assert {await state_of(queue, seq) for seq in seqs} == {"ready"}, "they were given back"


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


async def in_processes(begin: Begin, queue: AsyncTopic) -> tuple[Parent, list[int], list[int]]:
    """A worker, its jobs in a pool and alone, and the processes that they run in."""
    seqs = [await suspected(queue, "alone"), (await queue.enqueue("pooled")).seq]
    parent = begin(handlers=IN_PROCESSES)
    await parent.said("The worker runs")
    files = [parent.folder / "alone", parent.folder / "pooled"]
    for file in files:
        await asyncio.to_thread(until, lambda file=file: file.exists() and file.read_text(), 60)
    return parent, seqs, [int(file.read_text()) for file in files]


async def test_ctrl_c_lets_jobs_in_processes_come_to_their_end(begin: Begin, queue: AsyncTopic) -> None:
    parent, seqs, _ = await in_processes(begin, queue)
    os.killpg(parent.process.pid, signal.SIGINT)
    await parent.said("The worker stops when what it runs is done")
    (parent.folder / "go").touch()
    assert await parent.ended() == Exit.DONE
    assert [(await outcome(queue, seq)).result for seq in seqs] == ["done", "done"]


async def test_sigterm_to_all_processes_costs_their_jobs_nothing(begin: Begin, queue: AsyncTopic) -> None:
    parent, seqs, pids = await in_processes(begin, queue)
    leased = [await queue.job(seq) for seq in seqs]
    os.killpg(parent.process.pid, signal.SIGTERM)
    assert await parent.ended() == Exit.DONE
    jobs = [await queue.job(seq) for seq in seqs]
    assert [job.state for job in jobs] == ["ready", "ready"], parent.log.read_text()
    assert [job.deliveries for job in jobs] == [job.deliveries - 1 for job in leased]
    assert not [pid for pid in pids if lives(pid)]


async def test_processes_end_with_their_worker(begin: Begin, queue: AsyncTopic) -> None:
    parent, _, pids = await in_processes(begin, queue)
    parent.process.kill()
    await asyncio.to_thread(until, lambda: not [pid for pid in pids if lives(pid)], 60)
