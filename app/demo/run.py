"""One run of the demo: fills a queue, lets workers empty it, kills one of them, and checks the results."""

from __future__ import annotations

import json
import math
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from app.demo.files import File, Tally, Task, faults, first_of, left_over
from holdfast import Client, HoldfastError, SyncTopic, TopicConfig

LEASE_SECONDS: Final = 2.0
RECORDS: Final = 1_000  # per call
MOST_AT_ONCE: Final = 100
READY_SECONDS: Final = 30.0
TICK: Final = 0.02
REDRAW_SECONDS: Final = 0.1
LINE_SECONDS: Final = 1.0


class CannotGoOn(HoldfastError):
    """The demo can't start or continue. The message is for the user."""


@dataclass(frozen=True, slots=True)
class DemoPlan:
    """The demo's parameters. `batch`: concurrent jobs per worker; None: chosen by the number of files."""

    url: str
    key: str
    topic: str
    folder: Path
    files: Sequence[File]
    journals: Path
    workers: int
    batch: int | None
    kill: bool


def run(plan: DemoPlan, client: Client) -> int:
    """Run the demo. Returns the exit code and prints wrong results. Raises HoldfastError. The caller deletes the
    topic."""
    topic, total = client.topic(plan.topic), len(plan.files)
    topic.put(TopicConfig(lease_ms=round(LEASE_SECONDS * 1000), max_deliveries=None, dead_letter=None))
    with Crew(plan, topic) as crew:
        jobs = [{"path": file.path, "size": file.size} for file in plan.files]
        for start in range(0, total, RECORDS):
            topic.enqueue_many(jobs[start : start + RECORDS])
        crew.say(f"{total:,} jobs in the topic {plan.topic} at {client.account.base_url}; {plan.workers} workers")
        crew.work()
    if plan.kill and not crew.losses:
        print("No worker was killed. That needs two workers, and a job that the last one holds half way.")
    problems = faults(plan.folder, plan.files, crew.tally.results) + left_over(topic.get())
    print(f"\n{crew.tally.table(sum(file.size for file in plan.files), crew.losses)}\n")
    if problems:
        print(f"WRONG results ({len(problems):,}):\n{first_of(problems, '  ')}")
        return 1
    print("Every file was done at least once, every digest is right, and the queue is empty.")
    return 0


class Journal:
    """Reads a worker's journal. Skips an incomplete last line, whose writer may have been killed."""

    def __init__(self, path: Path) -> None:
        path.touch()
        self._file = path.open("rb")
        self._rest = b""

    def new(self) -> list[dict[str, Any]]:
        whole, _, self._rest = (self._rest + self._file.read()).rpartition(b"\n")
        return [json.loads(line) for line in whole.splitlines()]


class Hand:
    """One worker: its process and its journal. `node`: its name at the service, once it is ready."""

    def __init__(self, name: str, task: Task) -> None:
        self.name = name
        self.task = task
        self.node = ""
        self.seqs: list[int] = []  # of its results
        self.hangs = False
        self.killed = False
        self._journal = Journal(Path(task.journal))
        self.process = subprocess.Popen(
            [sys.executable, "-m", "app.demo.worker"],
            stdin=subprocess.PIPE,
            text=True,
            start_new_session=True,  # Ctrl+C is for the demo, which ends them
        )
        self.tell(json.dumps(asdict(task)))

    def tell(self, line: str) -> None:
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):  # it has ended, which the next look finds
            self.process.stdin.write(f"{line}\n")
            self.process.stdin.flush()

    def look(self, tally: Tally) -> None:
        """Count the results since the last call."""
        for line in self._journal.new():
            self.node = line.get("node", self.node)
            self.hangs = self.hangs or "hangs" in line
            if "path" in line:
                self.seqs.append(line["seq"])
                tally.add(self.name, line)


class Crew:
    """The workers of a run, their results, and the display of the progress: one line that is redrawn in a terminal,
    else a line every second. The last of several workers is killed half way. `losses`: how many jobs a killed worker
    held."""

    def __init__(self, plan: DemoPlan, topic: SyncTopic) -> None:
        self.tally = Tally(len(plan.files))
        self.losses: dict[str, int] = {}
        self._topic = topic
        self._plan = plan
        self._hands: list[Hand] = []
        self._live = sys.stdout.isatty()
        self._next_line = 0.0

    def __enter__(self) -> Crew:
        plan = self._plan
        batch = plan.batch or min(max(len(plan.files) // (8 * plan.workers), 1), MOST_AT_ONCE)
        for number in range(1, plan.workers + 1):
            name, hangs = f"worker-{number}", plan.kill and number == plan.workers > 1
            places = str(plan.folder.resolve()), str(plan.journals / f"{name}.jsonl")
            task = Task(plan.url, plan.key, plan.topic, *places, LEASE_SECONDS, batch, hangs)
            self._hands.append(Hand(name, task))
        return self

    def __exit__(self, *_: object) -> None:
        for hand in self._hands:
            hand.process.kill()
        for hand in self._hands:
            with suppress(OSError):  # what was not sent to a process that has gone
                hand.process.communicate()

    def work(self) -> None:
        """Start the workers once all are ready, and wait until the topic is empty. Raises HoldfastError."""
        tally, last = self.tally, self._hands[-1]
        self._until(lambda: all(hand.node for hand in self._hands), within=READY_SECONDS)
        tally.began = time.monotonic()
        if last.task.hangs:  # before the others begin, which may otherwise hold all remaining jobs half way
            last.tell("go")
            self._until(lambda: last.hangs, within=READY_SECONDS)
        for hand in self._hands:
            hand.tell("go")
        if last.hangs:
            self._until(lambda: len(tally.results) >= tally.total // 2)
            self._kill(last)
        self._until(lambda: len(tally.results) == tally.total and self._topic.get().count == 0)
        tally.ended = time.monotonic()
        self._show(now=True)
        if self._live:
            print()

    def say(self, text: str) -> None:
        """Print a line."""
        print(f"\r\033[K{text}" if self._live else text, flush=True)

    def _until(self, fact: Callable[[], bool], within: float = math.inf) -> None:
        """Count and show results until `fact` is true. Raises CannotGoOn if all workers have ended. With a finite
        `within`, also if one has ended or after so many seconds."""
        end = time.monotonic() + within
        while not fact():
            time.sleep(TICK)
            for hand in self._hands:
                hand.look(self.tally)
            ended = [hand.process.poll() is not None for hand in self._hands]
            if all(ended) or (within < math.inf and (any(ended) or time.monotonic() > end)):
                raise CannotGoOn("a worker stopped. See its output above")
            if self.tally.began:
                self._show()

    def _is_done(self) -> bool:
        return len(self.tally.results) == self.tally.total and self._topic.get().count == 0

    def _kill(self, hand: Hand) -> None:
        hand.process.kill()
        hand.process.wait()
        hand.killed = True
        hand.look(self.tally)
        held = {job.seq for job in self._topic.jobs(state="leased", node=hand.node)}
        self.losses[hand.name] = len(held)
        computed = len(held.intersection(hand.seqs))
        self.say(f"{hand.name} was killed (SIGKILL) while it held {len(held)} jobs: {computed} computed, none acked")

    def _show(self, *, now: bool = False) -> None:
        """Show the progress, if the last line is old enough or `now` is true."""
        if not now and time.monotonic() < self._next_line:
            return
        self._next_line = time.monotonic() + (REDRAW_SECONDS if self._live else LINE_SECONDS)
        width = shutil.get_terminal_size().columns - 1
        done, total, bar = len(self.tally.results), self.tally.total, min(24, width // 4)
        filled = bar * done // max(total, 1)
        by_worker = " ".join(f"{len(hand.seqs)}{' (killed)' if hand.killed else ''}" for hand in self._hands)
        parts = [f"[{'#' * filled}{'.' * (bar - filled)}]"] if self._live else []
        parts += [f"{done:>{len(str(total))}}/{total}", f"{self.tally.rate:,.0f} jobs/s"]
        parts += [f"{self.tally.redeliveries} redelivered", f"by worker: {by_worker}"]
        line = "  ".join(parts)
        print(f"\r{line[:width]}\033[K" if self._live else line, end="" if self._live else "\n", flush=True)
