"""How many jobs of a topic have failed: one number on every page, in the API, the metrics and the command line."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable

import httpx
import pytest

from holdfast import AsyncClient
from tests.admin.operator import Operator
from tests.api.conftest import Serve
from tests.api.dialect import Topic, accepted, eventually
from tests.api.keyring import Services
from tests.conftest import Running
from tests.sdk.cli import Cli

SENTENCE = "This list includes dead letters of other topics."


@pytest.fixture(scope="module")
async def alone(serve: Serve, new_database: Callable[[], Awaitable[str]]) -> Running:
    """A service on a database of its own, which wants no key."""
    return await (await Services.make(serve, new_database)).start()


@pytest.fixture(scope="module")
async def http(alone: Running) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=alone.url) as http:
        yield http


async def fail(topic: Topic, count: int, **fields: object) -> list[int]:
    """So many jobs that fail for good: their seqs."""
    seqs = await topic.add(count, **fields)
    assert (await topic.claim(max=count))["count"] == count
    await topic.fail("n", seqs, errors=["no"] * count)
    return seqs


@pytest.fixture(scope="module")
async def orders(http: httpx.AsyncClient) -> Topic:
    """A topic with 6 failed jobs: 4 failed in place, 3 became dead letters, and one of these was requeued.

    Its dead-letter topic has those of another topic, too."""
    orders, mail = Topic(http, "orders"), Topic(http, "mail")
    await orders.put(on_exhausted="fail")
    await fail(orders, 3)
    await fail(orders, 1, tenant="acme")
    for topic in (orders, mail):
        await topic.put(dead_letter="dead")
    await fail(mail, 2)
    seqs = await fail(orders, 3, tenant="acme")
    assert (await http.post(f"{orders.path}/requeue", json={"seqs": seqs[:1]})).status_code == 202

    async def is_back() -> bool:
        return await orders.counts() == (1, 0)

    await eventually(is_back)
    return orders


async def test_it_is_the_same_wherever_it_is_shown(orders: Topic, http: httpx.AsyncClient, alone: Running) -> None:
    stats = accepted(await http.get(f"{orders.path}/stats?by=tenant"))
    assert (stats["total"]["dead"], stats["total"]["dead_exact"]) == (6, True)
    assert {one["tenant"]: one["dead"] for one in stats["tenants"]} == {"": 3, "acme": 3}
    overview = accepted(await http.get("/v0/overview"))["topics"]
    assert {one["topic"]: one["dead"] for one in overview} == {"dead": 0, "mail": 2, "orders": 6}
    failures = accepted(await http.get(f"{orders.path}/failures"))["failures"]
    assert sum(one["count"] for one in failures) == 6
    assert (await orders.state())["queue"]["dead_lettered"] == 3, "it counts over the life of the topic"
    metrics = (await http.get("/metrics")).text
    assert 'holdfast_topic_dead{topic="orders"} 6' in metrics
    assert 'holdfast_topic_dead{topic="mail"} 2' in metrics
    pages = Operator(http)
    (listed,) = [row for row in (await pages.open("topics")).table if row[0] == "orders"]
    assert listed[6] == "6"
    for path in ("", "/dead", "/jobs"):
        assert "Failed 6" in (await pages.open(f"topics/orders{path}")).all(".//nav")[0]
    assert "Failed 6" in (await pages.open("topics/orders")).all(".//dl/div")
    said = (await Cli(alone.url)("stats", "orders", "--json")).object
    assert (said["dead"], said["dead_exact"]) == (6, True)
    async with AsyncClient(alone.url) as client:
        assert (await client.topic("orders").totals()).dead == 6


async def test_a_dead_letter_topic_says_whose_its_letters_are_and_counts_none_as_its_own(
    orders: Topic, http: httpx.AsyncClient
) -> None:
    await http.get("/v0/overview")  # which topics take dead letters was looked at
    for path in ("", "/dead"):
        page = await Operator(http).open(f"topics/dead{path}")
        assert SENTENCE in page.text
        assert "FailedConfig" in page.all(".//nav")[0], "the tab has no count"
        assert not [one for one in page.all(".//dl/div") if one.startswith("Failed")]
        assert SENTENCE not in (await Operator(http).open(f"topics/orders{path}")).text
