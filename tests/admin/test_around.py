"""The parts of a topic's page about its workers, groups, tenants and schedules."""

from __future__ import annotations

import asyncio
import contextlib
import html
from collections.abc import AsyncIterator, Sequence

from app.pages import render
from tests.admin.conftest import HOUR
from tests.admin.operator import Operator
from tests.api.dialect import Topic, accepted, eventually, until_waiting
from tests.api.events import working
from tests.conftest import Running

HOSTILE = "<u>worker</u>"


@contextlib.asynccontextmanager
async def claiming(service: Running, queue: Topic, nodes: Sequence[str], **fields: object) -> AsyncIterator[None]:
    """Claims that wait for a job, one of each of these."""
    before = service.waiting(queue.name)
    calls = [asyncio.create_task(queue.claim(node, wait_ms=20_000, **fields)) for node in nodes]
    try:
        await until_waiting(service, queue.name, before + len(calls))
        yield
    finally:
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
        await until_waiting(service, queue.name, before)


async def test_it_names_those_that_wait_in_claims_and_streams(boss: Operator, service: Running, queue: Topic) -> None:
    async def told() -> str:
        text = (await boss.open(f"topics/{queue.name}")).text
        return text.partition(" Workers ")[2].partition(" Tenants ")[0]

    assert (await told()).startswith("No worker holds a job.")
    async with claiming(service, queue, [HOSTILE]):
        assert f"No worker holds a job. 1 call to this process waits for a job: {HOSTILE}." in await told()
        async with working(queue, "stream"), claiming(service, queue, ["b", HOSTILE], tenants=["acme"]):
            await until_waiting(service, queue.name, 4)
            assert " 4 calls to this process wait for a job: <u>worker</u>, b, stream." in await told()
    nodes = [f"w{n:02}" for n in range(22)]
    async with claiming(service, queue, nodes):
        said = f"22 calls to this process wait for a job: {', '.join(nodes[:20])} and 2 more."
        assert said in await told()
    await queue.add(1)
    await queue.claim("busy", lease_ms=60_000)
    async with claiming(service, queue, ["idle"]):
        assert "1 call to this process waits for a job: idle." in await told()


async def test_it_shows_who_works_what_waits_and_what_comes(boss: Operator, queue: Topic) -> None:
    body = {"topic": queue.name, "cron": "0 0 * * mon", "record": {"data": 1}}
    accepted(await queue.http.put(f"/v0/schedules/weekly.{queue.name}", json=body))
    await queue.append(*({"data": n, "group": "<i>ada</i>", "tenant": "<b>acme</b>"} for n in range(4)))
    await queue.append({"data": 1}, {"data": 2})
    await queue.claim("<u>worker</u>", max=3, lease_ms=HOUR)
    page = await boss.open(f"topics/{queue.name}")
    assert page.row("<u>worker</u> 3 ")
    assert "3 job 1, leased by <u>worker</u>" in page.row("<i>ada</i>")
    assert page.link(f"weekly.{queue.name}")

    async def counted() -> bool:
        rows = (await boss.open(f"topics/{queue.name}")).table
        return ["<b>acme</b>", "0", "1", "0", "3", "0", "–"] in rows

    await eventually(counted, 30)


async def test_the_oldest_job_may_be_behind_another_of_its_group(boss: Operator, queue: Topic) -> None:
    await queue.put(wait_goal_ms=1)
    await queue.add(3, group="g")
    await queue.claim("hung", lease_ms=HOUR)

    async def is_very_late() -> bool:
        return "very late" in (await boss.open(f"topics/{queue.name}")).all(".//dl")[0]

    await eventually(is_very_late)
    page = await boss.open(f"topics/{queue.name}")
    assert "1 group doesn't move:" in page.text
    assert "and 2 jobs wait behind." in page.text
    assert "Waiting groups" in page.text

    async def shown() -> bool:
        """In the list, which sorts by it, once the topic was looked at."""
        found = (await boss.open(f"topics?q={queue.name}")).all(".//td[@data-label='Oldest']")
        return len(found) == 1 and found[0] not in {"", "–"}

    await eventually(shown, 30)


def test_a_release_says_whose_word_counts_later() -> None:
    """In the messages dialect all consumers are one node, and an ack may name no lease."""
    ui = render._templates().get_template("macros.html").module
    late_word = vars(ui)["late_word"]
    assert str(late_word(HOSTILE)) == f"later reports from {html.escape(HOSTILE)} about it are ignored"
    beside = "if they name the lease_id (all consumers of the messages dialect share this worker name)"
    assert str(late_word("messages", "them")) == f"later reports from messages about them are ignored {beside}"
