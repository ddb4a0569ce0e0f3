"""What a topic held at an instant, beside what it holds now."""

from __future__ import annotations

import time
from datetime import UTC, datetime

import httpx
import pytest

from tests.admin.operator import Operator
from tests.api.dialect import Topic, eventually
from tests.conftest import Running

PAGE = "topics/back/asof"


@pytest.fixture(scope="module")
async def then(service: Running) -> datetime:
    """A whole second at which the topic had five jobs that were ready; now it has one that is leased, and one more that
    has failed."""
    async with httpx.AsyncClient(base_url=service.url, headers={"authorization": "Bearer root"}) as http:
        back = Topic(http, "back")
        await back.put(max_deliveries=1, on_exhausted="fail")
        await back.add(5)
        instant = int(time.time()) + 1

        async def is_over() -> bool:
            return time.time() > instant + 0.2

        await eventually(is_over)
        seqs = [job["$seq"] for job in (await back.claim(max=3, lease_ms=3_600_000))["claimed"]]
        await back.ack("n", seqs[:1])
        await back.nack("n", seqs[1:2])
    return datetime.fromtimestamp(instant, UTC)


async def test_a_topic_at_an_instant_beside_now(boss: Operator, then: datetime) -> None:
    page = await boss.follow(await boss.open("topics/back"), "Time")
    assert "Choose a time." in page.text
    at = f"{then:%Y-%m-%dT%H:%M:%S}"
    page = await boss.open(f"{PAGE}?at={at}")
    assert page.main.findall(".//h2/time")[0].get("datetime") == f"{at}.000Z"
    found = {row[0]: row[1:] for row in page.table}
    assert found["Ready"] == ["5", "2", "−3"]
    assert found["In flight"] == ["0", "1", "+1"]
    assert found["Failed"] == ["0", "1", "+1"]
    assert found["Scheduled"] == ["0", "0", "same"]
    assert found["Dead letters"] == ["0", "–", "–"]
    page = await boss.follow(page, "Ready")
    assert page.rows == ["1", "2", "3", "4", "5"]
    assert page.link("Next") is None
    assert page.link("1") == "/admin/topics/back/jobs/1"


async def test_what_there_is_nothing_of_is_said_beside_the_field(boss: Operator, then: datetime) -> None:
    for at, status, words in (
        ("2001-01-01T00:00:00Z", 404, "Events are kept since "),
        ("2999-01-01T00:00:00", 400, "This time is in the future."),
        ("<script>", 400, "Must be a time"),
        ("9" * 15, 400, "Must be a time"),
    ):
        page = await boss.open(f"{PAGE}?at={at}", status)
        assert page.main.findall(".//*[@id='at']")[0].get("value") == at
        assert page.all(".//*[@id='at-fault']")[0].startswith(words)
    for topic, status in (("events", 409), ("nothing", 404)):
        await boss.open(f"topics/{topic}/asof", status)


async def test_what_takes_too_long_to_read_is_said_beside_the_field(
    boss: Operator, service: Running, then: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.features.explain.store.SECONDS", 0.2)
    async with service.context.pools.rest.acquire() as db, db.transaction():
        await db.execute("LOCK TABLE holdfast.lease_events")  # nobody else can read it meanwhile
        page = await boss.open(f"{PAGE}?at={int(then.timestamp() * 1000)}", 422)
    assert page.all(".//*[@id='at-fault']")[0].startswith("The history of this period is too long")
