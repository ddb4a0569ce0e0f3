"""How rival queues are asked and judged. The rivals themselves are not installed for a test run."""

from __future__ import annotations

import json
import sys
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import httpx
import pytest

from app.kernel.topics.policy import Policy
from tests.conftest import Running
from tools.bench.figures import Missing, Ratio
from tools.bench.peers.bars import against_best
from tools.bench.peers.contest import Outcome, Standing
from tools.bench.peers.install import PINS, ROOT
from tools.bench.peers.processes import DriverProcess, Failed, started
from tools.bench.peers.rivals import HOLDFAST, PEERS

PATIENCE = 30.0
TINY = """
import asyncio, sys, time
from tools.bench.peers.drivers.protocol import in_lanes, serve, until_done

class Tiny:
    async def prepare(self, url):
        print("a library says something")
        if url == "error":
            raise ValueError("no such place")
        if url == "end":
            sys.stderr.write("out of memory\\n")
            sys.stderr.flush()
            import os; os._exit(3)
        if url == "slow":
            time.sleep(60)
        return "1.2.3"

    async def cycle(self, payloads, meter, claim):
        kept = []

        async def enqueue(some):
            kept.extend(some)

        async def work():
            while kept:
                for _ in range(claim or 50):
                    kept.pop()
                meter.handled(claim or 50)
                await asyncio.sleep(0.001)

        began = time.perf_counter()
        await in_lanes(enqueue, payloads, 100, 4)
        assert len(kept) == len(payloads)
        assert all(len(__import__("json").dumps(one)) == 256 for one in kept)
        enqueued = time.perf_counter()
        meter.start()
        worker = asyncio.ensure_future(work())
        await until_done(worker, meter)
        worker.cancel()
        return enqueued - began, time.perf_counter() - enqueued

serve(Tiny())
"""
CYCLE = {"verb": "cycle", "payload": 256, "slices": 10, "seconds": 60, "claim": None}


def tiny(folder: Path) -> AbstractAsyncContextManager[DriverProcess]:
    return started([sys.executable, "-c", TINY], ROOT, folder / "log")


async def test_a_driver_answers_line_by_line(tmp_path: Path) -> None:
    async with tiny(tmp_path) as driver:
        assert await driver.ask(PATIENCE, verb="prepare", url="here") == {"version": "1.2.3"}
        outcome = Outcome(version="1.2.3", **await driver.ask(PATIENCE, jobs=1000, **CYCLE))
    assert outcome.jobs == 1000
    assert len(outcome.slices) == 10
    assert min(outcome.slices) > 0
    whole = 1 / (1 / outcome.enqueue_per_s + 1 / outcome.run_per_s)
    assert outcome.cycle_per_s == pytest.approx(whole)
    assert "a library says something" in (tmp_path / "log").read_text()


async def test_a_run_that_takes_too_long_counts_as_far_as_it_came(tmp_path: Path) -> None:
    async with tiny(tmp_path) as driver:
        await driver.ask(PATIENCE, verb="prepare", url="here")
        answer = await driver.ask(PATIENCE, jobs=100_000, **CYCLE | {"seconds": 0.2, "claim": 10})
    outcome = Outcome(version="", **answer)
    assert 0 < outcome.jobs < 100_000
    assert outcome.run_per_s < outcome.jobs / 0.2 * 1.01
    assert len(outcome.slices) == outcome.jobs // 10_000


async def test_an_error_has_its_reason_and_the_driver_goes_on(tmp_path: Path) -> None:
    async with tiny(tmp_path) as driver:
        with pytest.raises(Failed, match="ValueError: no such place"):
            await driver.ask(PATIENCE, verb="prepare", url="error")
        assert await driver.ask(PATIENCE, verb="prepare", url="here") == {"version": "1.2.3"}


async def test_a_driver_that_ends_leaves_its_last_words(tmp_path: Path) -> None:
    async with tiny(tmp_path) as driver:
        with pytest.raises(Failed, match=r"the driver ended; it said: out of memory"):
            await driver.ask(PATIENCE, verb="prepare", url="end")
        with pytest.raises(Failed):
            await driver.ask(PATIENCE, verb="prepare", url="here")


async def test_patience_ends(tmp_path: Path) -> None:
    async with tiny(tmp_path) as driver:
        await driver.ask(PATIENCE, verb="prepare", url="here")
        with pytest.raises(Failed, match="no answer to prepare"):
            await driver.ask(0.2, verb="prepare", url="slow")
        driver.kill()


@pytest.mark.parametrize(("said", "reason"), [("hello", "not a line of JSON"), ("[1]", r"not an answer: \[1\]")])
async def test_what_is_no_answer_is_refused(tmp_path: Path, said: str, reason: str) -> None:
    command = [sys.executable, "-c", f"input(); print({said!r}, flush=True); input()"]
    async with started(command, ROOT, tmp_path / "log") as driver:
        with pytest.raises(Failed, match=reason):
            await driver.ask(PATIENCE, verb="prepare", url="here")


async def test_a_program_that_is_not_there_is_a_failure(tmp_path: Path) -> None:
    with pytest.raises(Failed, match="no-such-program"):
        async with started([str(tmp_path / "no-such-program")], tmp_path, tmp_path / "log"):
            pass


async def test_holdfasts_own_driver_runs_every_job(
    tmp_path: Path,
    service: Running,
    http: httpx.AsyncClient,
    topic: str,
    make_queue: Callable[..., Awaitable[Policy]],
) -> None:
    await make_queue(topic, durable=True)
    command, folder = HOLDFAST.command()
    async with started(command, folder, tmp_path / "log") as driver:
        await driver.ask(PATIENCE, verb="prepare", url=f"{service.url}/v0/topics/{topic}")
        whole = await driver.ask(PATIENCE, jobs=1200, **CYCLE)
        by_tens = await driver.ask(PATIENCE, jobs=100, **CYCLE | {"claim": 10})
        with pytest.raises(Failed, match="topic_not_found"):
            await driver.ask(PATIENCE, verb="prepare", url=f"{service.url}/v0/topics/{topic}-not")
    assert (whole["jobs"], by_tens["jobs"]) == (1200, 100)
    left = (await http.get(f"/v0/topics/{topic}")).json()
    assert (left["count"], left["head_seq"]) == (0, 1300)


def outcomes(*cycles: float) -> list[Outcome]:
    return [Outcome("1", 100, 2 * cycle, 2 * cycle, cycle, []) for cycle in cycles]


def test_holdfast_is_measured_against_the_best_of_those_that_ran() -> None:
    slow, best, *lost = (peer.name for peer in PEERS)
    measured = {"Holdfast": outcomes(30, 10, 20), slow: outcomes(1, 9, 2), best: outcomes(5, 4, 6)}
    standing = Standing(measured, dict.fromkeys(lost, "it broke"))
    figure = against_best(standing, [HOLDFAST, *PEERS])
    assert isinstance(figure, Ratio)
    assert (figure.rate, figure.base, figure.ratio, figure.passed) == (20, 5, 4, True)
    assert figure.name.endswith(f"({best}, without {', '.join(lost)})")
    assert figure.notes["missing"] == dict.fromkeys(lost, "it broke")
    table = standing.table([HOLDFAST, *PEERS])
    assert [f"{name:16} could not be measured: it broke" in table for name in lost] == [True] * len(lost)


def test_without_any_peer_the_bar_is_missed_for_that_reason() -> None:
    missing = {peer.name: "not installed: no network" for peer in PEERS}
    figure = against_best(Standing({"Holdfast": outcomes(1)}, missing), [HOLDFAST, *PEERS])
    assert isinstance(figure, Missing)
    assert not figure.passed
    assert all(f"{peer.name}: not installed: no network" in figure.line() for peer in PEERS)


def test_the_pins_name_no_registry_and_have_hashes() -> None:
    requirements, _, lock = (pin.read_text() for pin in PINS)
    packages = json.loads(lock)["packages"]
    locked = {name: package for name, package in packages.items() if name}
    assert {"node_modules/graphile-worker", "node_modules/pg-boss"} <= locked.keys()
    assert [name for name, package in locked.items() if "resolved" in package] == []
    assert [name for name, package in locked.items() if not package.get("integrity")] == []
    pinned = [entry for entry in requirements.replace("\\\n", "").splitlines() if entry.strip()]
    assert {"awa-pg", "pgqueuer", "procrastinate"} <= {entry.partition("==")[0] for entry in pinned}
    assert [entry for entry in pinned if "==" not in entry or "--hash=sha256:" not in entry] == []
    assert "://" not in requirements
