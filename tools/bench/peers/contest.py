"""One measurement of one queue, and all of them in turns."""

from __future__ import annotations

import asyncio
import secrets
import statistics
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit, urlunsplit

import asyncpg

from tools.bench.bench import Bench, say
from tools.bench.peers import install
from tools.bench.peers.processes import Failed, started
from tools.bench.peers.rivals import Ours, Rival

START_SECONDS: Final = 60.0
CYCLE_SECONDS: Final = 60.0  # a run that takes longer is cut, and counts as far as it came
WARM_UP: Final = 10  # a tenth of the jobs first, uncounted
SLICES: Final = 20


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a driver measured: rates in jobs a second; `slices` those of the run, for equal parts of its jobs."""

    version: str
    jobs: int
    enqueue_per_s: float
    run_per_s: float
    cycle_per_s: float
    slices: Sequence[float]


@dataclass(frozen=True, slots=True)
class Standing:
    """All outcomes of the queues that could be measured, and why the others could not."""

    outcomes: dict[str, list[Outcome]]
    missing: dict[str, str]

    def median(self, name: str, rate: str) -> float:
        """Over the rounds."""
        return statistics.median(self.rates(name, rate))

    def rates(self, name: str, rate: str) -> list[float]:
        """Round by round; `rate` is a field of Outcome."""
        return [getattr(outcome, rate) for outcome in self.outcomes[name]]

    def record(self, rivals: Sequence[Rival]) -> dict[str, object]:
        """For the JSON."""
        measured = {
            rival.name: {
                "version": self.outcomes[rival.name][0].version,
                "settings": rival.settings,
                **{rate: self.rates(rival.name, rate) for rate in ("enqueue_per_s", "run_per_s", "cycle_per_s")},
            }
            for rival in rivals
            if rival.name in self.outcomes
        }
        return {"measured": measured, "missing": self.missing}

    def table(self, rivals: Sequence[Rival]) -> str:
        """A line for each queue, the missing ones with the reason."""
        lines = [f"{'jobs a second':16} {'version':9} {'enqueue':>9} {'run':>9} {'cycle':>9}"]
        for rival in rivals:
            if rival.name in self.missing:
                lines.append(f"{rival.name:16} could not be measured: {self.missing[rival.name]}")
                continue
            rates = [self.median(rival.name, f"{rate}_per_s") for rate in ("enqueue", "run", "cycle")]
            version = self.outcomes[rival.name][0].version
            lines.append(
                f"{rival.name:16} {version:9} {rates[0]:9,.0f} {rates[1]:9,.0f} {rates[2]:9,.0f}  {rival.settings}"
            )
        return "\n".join(lines)


async def contest(
    bench: Bench,
    rivals: Sequence[Rival],
    rounds: int,
    jobs: Callable[[Rival], int],
    *,
    claim: int | None = None,
    held: bool = False,
) -> Standing:
    """Measure all of them in each round, beginning with another one each time. Raises Failed if Holdfast fails."""
    standing = Standing({}, await asyncio.to_thread(_not_installed, rivals))
    for i in range(rounds):
        for rival in [*rivals[i % len(rivals) :], *rivals[: i % len(rivals)]]:
            if rival.name in standing.missing:
                continue
            try:
                outcome = await take(bench, rival, jobs(rival), claim=claim, held=held)
            except Failed as error:
                if rival.ours:
                    raise
                standing.missing[rival.name] = str(error)
                standing.outcomes.pop(rival.name, None)
                say(f"{rival.name} could not be measured: {error}")
            else:
                standing.outcomes.setdefault(rival.name, []).append(outcome)
                say(f"{rival.name}: {outcome.cycle_per_s:,.0f} jobs/s, run alone {outcome.run_per_s:,.0f}")
    return standing


async def take(bench: Bench, rival: Rival, jobs: int, *, claim: int | None = None, held: bool = False) -> Outcome:
    """One cycle of a queue in a database of its own. Raises Failed.

    `claim`: so many jobs at a time, not what is best for it; `held`: while an old snapshot is held in its database.
    """
    command, folder = rival.command()
    log = install.ROOT / f"var/bench-peers.{rival.name}.log"
    log.parent.mkdir(exist_ok=True)
    async with _ground(bench, rival) as (url, database), started(command, folder, log) as driver:
        version = (await driver.ask(START_SECONDS, verb="prepare", url=url))["version"]

        async def cycle(count: int) -> Outcome:
            asked = {
                "jobs": count,
                "payload": bench.payload,
                "slices": SLICES,
                "seconds": CYCLE_SECONDS,
                "claim": claim,
            }
            answer = await driver.ask(3 * CYCLE_SECONDS, verb="cycle", **asked)
            try:
                return Outcome(version=version, **answer)
            except TypeError as error:
                raise Failed(f"not an outcome: {error}") from None

        await cycle(max(jobs // WARM_UP, SLICES))
        async with _old_snapshot(database) if held else nullcontext():
            outcome = await cycle(jobs)
    if outcome.jobs == 0:
        raise Failed(f"ran none of {jobs} jobs in {CYCLE_SECONDS:.0f} s")
    return outcome


def _not_installed(rivals: Sequence[Rival]) -> dict[str, str]:
    try:
        install.ensure()
    except Failed as error:
        return {rival.name: f"not installed: {error}" for rival in rivals if not isinstance(rival, Ours)}
    return {}


@asynccontextmanager
async def _ground(bench: Bench, rival: Rival) -> AsyncIterator[tuple[str, str]]:
    """What its driver is sent to, and the database that this ends in."""
    if rival.ours:
        topic = (await bench.queue("peers")).topic.name
        yield f"http://127.0.0.1:{bench.service.port}/v0/topics/{topic}", bench.url
        return
    name = f"bench_peer_{secrets.token_hex(4)}"
    await bench.db.execute(f"CREATE DATABASE {name}")
    try:
        await bench.db.execute(f"ALTER DATABASE {name} SET synchronous_commit = on")
        url = urlunsplit(urlsplit(bench.url)._replace(path=f"/{name}"))
        yield url, url
    finally:
        await bench.db.execute(f"DROP DATABASE {name} WITH (FORCE)")


@asynccontextmanager
async def _old_snapshot(database: str) -> AsyncIterator[None]:
    holder = await asyncpg.connect(database)
    try:
        async with holder.transaction(isolation="repeatable_read"):
            await holder.fetchval("SELECT count(*) FROM pg_class")
            yield
    finally:
        await holder.close()
