"""One run of the demo against a service: fill a queue, let the workers empty it, and look whether all is well."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from app.demo import verdict
from app.demo.client import Client
from app.demo.crew import Crew
from app.demo.files import File
from app.demo.journal import Task
from app.demo.tally import Display, Hand, Tally

LEASE_MS: Final = 2_000
RECORDS: Final = 500  # a call
MOST_A_CLAIM: Final = 100
FEW: Final = 24


@dataclass(frozen=True, slots=True)
class DemoPlan:
    """What to do. `batch`: jobs a claim, None for a number that suits."""

    folder: Path
    files: Sequence[File]
    topic: str
    workers: int
    batch: int | None
    kill: bool


def run(plan: DemoPlan, client: Client, key: str, journals: Path) -> int:
    """The exit code; what is not as promised is printed. Raises Refused. The topic is the caller's to delete."""
    nodes = [f"worker-{i + 1}" for i in range(plan.workers)]
    tally = Tally(len(plan.files), {node: Hand() for node in nodes})
    display = Display(tally)
    _create(plan, client)
    with Crew(_tasks(plan, nodes, client.url, key, journals), tally) as crew:
        _fill(plan, client)
        display.say(f"{len(plan.files):,} jobs in the topic {plan.topic} at {client.url}; {plan.workers} workers")
        crew.go()

        def killed(node: str, held: int, written: int) -> None:
            display.say(f"{node} was killed (SIGKILL) with {held} jobs in its hands: {written} computed, none acked")

        crew.watch(lambda: tally.done == tally.total and _is_empty(plan, client), killed, display.show)
        display.end()
    if plan.kill and not any(hand.killed for hand in tally.hands.values()):
        print("Nobody was killed: that takes two workers, and a job in the last one's hands half way.")
    return _judge(plan, client, tally)


def _create(plan: DemoPlan, client: Client) -> None:
    # The answer is what was asked for, or the demo would show another queue than it says.
    config = {"type": "queue", "durable": True, "lease_ms": LEASE_MS}
    client.call("PUT", f"/v0/topics/{plan.topic}", config)


def _tasks(plan: DemoPlan, nodes: Sequence[str], url: str, key: str, journals: Path) -> list[Task]:
    batch = plan.batch or min(max(len(plan.files) // (8 * len(nodes)), 1), MOST_A_CLAIM)
    # The last one hangs half way; alone, it is needed to the end.
    victim = nodes[-1] if plan.kill and len(nodes) > 1 else None
    # With few jobs it is at the first that it gets: there may be no second.
    half = len(plan.files) // 2 if len(plan.files) > FEW else len(plan.files)
    return [
        Task(
            url=url,
            key=key,
            topic=plan.topic,
            node=node,
            folder=str(plan.folder.resolve()),
            journal=str(journals / f"{node}.jsonl"),
            lease_ms=LEASE_MS,
            batch=batch,
            hang_at=half if node == victim else None,
        )
        for node in nodes
    ]


def _fill(plan: DemoPlan, client: Client) -> None:
    for start in range(0, len(plan.files), RECORDS):
        part = plan.files[start : start + RECORDS]
        records = [{"data": {"path": file.path, "size": file.size}} for file in part]
        client.call("POST", f"/v0/topics/{plan.topic}", {"records": records})


def _is_empty(plan: DemoPlan, client: Client) -> bool:
    return bool(client.call("GET", f"/v0/topics/{plan.topic}")["count"] == 0)


def _judge(plan: DemoPlan, client: Client, tally: Tally) -> int:
    problems = verdict.faults(plan.folder, plan.files, tally.results)
    problems += verdict.left_over(client.call("GET", f"/v0/topics/{plan.topic}"))
    print(f"\n{verdict.table(tally, sum(file.size for file in plan.files))}\n")
    if problems:
        print(f"NOT as promised ({len(problems):,}):\n{verdict.shown(problems)}")
        return 1
    print("Every file was done at least once, every digest is right, and the queue is empty.")
    return 0
