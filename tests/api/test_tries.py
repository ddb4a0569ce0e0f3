"""How often a job of the messages dialect is tried, and where it goes then: what a configuration does."""

from __future__ import annotations

from typing import TYPE_CHECKING

import httpx
import msgspec
import pytest

from app.kernel.topics.policy import Defaults, in_effect, of_messages
from tests.api.configs import OPEN, Configs
from tests.api.dialect import Topic, eventually, refused
from tests.api.keyring import client

if TYPE_CHECKING:
    from tests.api.conftest import Serve


@pytest.fixture
def configs(http: httpx.AsyncClient, topic: str) -> Configs:
    return Configs(http, topic)


@pytest.fixture
def queue(http: httpx.AsyncClient, topic: str) -> Topic:
    """The same topic in v0's words; not made."""
    return Topic(http, topic)


def test_how_often_a_job_is_tried_and_where_it_goes_then() -> None:
    """max_retries and dlq_threshold, each perhaps left open; how many tries that is, and which end."""
    for (retries, threshold), tries, end in (
        ((1, 1), 1, "dead_letter"),
        ((1, 0), 1, "fail"),
        ((1, 2), 1, "fail"),
        ((2, 1), 1, "dead_letter"),
        ((3, 2), 2, "dead_letter"),
        ((2, 3), 2, "fail"),
        ((2, 2), 2, "dead_letter"),
        ((2, 0), 2, "fail"),
        ((0, 0), 1, "fail"),
        ((0, 1), 1, "fail"),
        ((0, 3), 1, "fail"),
        ((None, None), 3, "dead_letter"),
        ((None, 0), 3, "fail"),
        ((None, 4), 3, "fail"),
        ((5, None), 5, "dead_letter"),
        ((1, None), 1, "dead_letter"),
        ((0, None), 1, "fail"),
    ):
        chosen = msgspec.structs.replace(of_messages("t"), max_retries=retries, dlq_threshold=threshold)
        config = in_effect("t", chosen, Defaults())
        assert (config.max_deliveries, config.on_exhausted.value) == (tries, end), (retries, threshold)
        assert config.dead_letter == ("t.dlq" if end == "dead_letter" else None)


@pytest.mark.parametrize(("threshold", "end"), [(2, "dead"), (0, "failed")])
async def test_so_it_is_done(configs: Configs, queue: Topic, threshold: int, end: str) -> None:
    await configs.put(max_retries=2, dlq_threshold=threshold)
    await queue.append({"data": "nacked"}, {"data": "silent"})
    for delivery in (1, 2):
        jobs = [await queue.take(), await queue.take()]
        assert {job["deliveries"] for job in jobs} == {delivery}
        by_data = {job["data"]: job["$seq"] for job in jobs}
        assert (await queue.nack("n", [by_data["nacked"]]))["nacked"] == 1
        await queue.extend("n", [by_data["silent"]], 100)  # its holder dies
    dead = Topic(queue.http, f"{queue.name}.dlq")

    async def is_over() -> bool:
        assert (await queue.claim(max=5))["count"] == 0
        state = await queue.state()
        return bool(state["count"] == 0 and state["queue"]["dead_lettered"] == (2 if end == "dead" else 0))

    await eventually(is_over)
    if end == "failed":
        assert (await queue.http.get(dead.path)).status_code == 404
        return
    buried = (await dead.claim(max=5))["claimed"]
    assert {job["data"] for job in buried} == {"nacked", "silent"}
    assert {job["meta"]["$dead_letter_deliveries"] for job in buried} == {"2"}
    # It is no topic that this dialect has configured, and it gives jobs back without end.
    assert (await dead.state())["config"]["max_deliveries"] == 0
    refused(await configs.http.get(f"/api/topic-configs/{dead.name}"), 404, "not_found")


async def test_a_change_counts_for_the_next_call(configs: Configs, queue: Topic) -> None:
    await configs.put(visibility_timeout_seconds=120)
    await queue.add(4)
    first = await queue.take()
    await configs.put(visibility_timeout_seconds=60)
    second = await queue.take()
    assert second["deadline"] < first["deadline"] - 40_000
    await configs.put(max_retries=1, dlq_threshold=0)
    assert (await queue.nack("n", [first["$seq"]]))["nacked"] == 1
    await configs.put()
    assert (await queue.nack("n", [second["$seq"]]))["nacked"] == 1
    assert (await queue.take())["$seq"] == second["$seq"], "the first has failed, the second has not"


async def test_the_operators_defaults_hold_where_a_topic_leaves_it_open(serve: Serve, topic: str) -> None:
    running = await serve(max_retries=2, dlq_threshold=0, message_ttl_seconds=60, visibility_timeout_seconds=7)
    async with client(running) as http:
        configs, queue = Configs(http, topic), Topic(http, topic)
        await configs.put()
        assert await configs.get() == OPEN
        config = (await queue.state())["config"]
        assert (config["max_deliveries"], config["on_exhausted"], config["dead_letter"]) == (2, "fail", None)
        assert (config["ttl_ms"], config["lease_ms"]) == (60_000, 7_000)
        await configs.put(max_retries=9, message_ttl_seconds=0, visibility_timeout_seconds=8)
        config = (await queue.state())["config"]
        assert (config["max_deliveries"], config["ttl_ms"], config["lease_ms"]) == (9, 0, 8_000)
        # An operator who has turned dead letters off has done so for topics with max_retries, too.
        assert (config["on_exhausted"], config["dead_letter"]) == ("fail", None)
        await configs.put(max_retries=9, dlq_threshold=4)
        config = (await queue.state())["config"]
        assert (config["max_deliveries"], config["on_exhausted"]) == (4, "dead_letter")
