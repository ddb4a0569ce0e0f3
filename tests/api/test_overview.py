"""GET /v0/overview."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import Any

import asyncpg
import httpx
import pytest

from app.features.stats.overview import MINUTES
from tests.api import minutes
from tests.api.conftest import Serve
from tests.api.dialect import Topic, accepted, eventually, every_page, refused
from tests.api.keyring import Services, bearer, client
from tests.conftest import Running

Seen = dict[str, Any]


@pytest.fixture
async def own(serve: Serve, new_database: Callable[[], Awaitable[str]]) -> Services:
    """A database of the test's own."""
    return await Services.make(serve, new_database)


@pytest.fixture
async def alone(own: Services) -> Running:
    """A service on it, which has not looked at anything yet."""
    return await own.start(api_keys="all,mail:read:mail.", metrics_topics=5)


async def look(http: httpx.AsyncClient, query: str = "", key: str = "all") -> Seen:
    found: Seen = accepted(await http.get(f"/v0/overview{query}", headers=bearer(key)))
    return found


async def names(http: httpx.AsyncClient, query: str, key: str = "all") -> list[str]:
    return [one["topic"] for one in (await look(http, query, key))["topics"]]


async def test_it_has_what_topics_hold_and_what_became_of_jobs(alone: Running) -> None:
    async with client(alone, "all") as http:
        queue = Topic(http, "orders")
        await queue.put(max_deliveries=1, on_exhausted="dead_letter", dead_letter="dead")
        await Topic(http, "dead").put()
        await Topic(http, "log").put(type="log")
        await Topic(http, "log").append({"data": 1})
        await queue.append(*({"data": n} for n in range(6)), {"data": 6, "delay_ms": 60_000})
        claimed = [job["$seq"] for job in (await queue.claim(max=4))["claimed"]]
        await queue.ack("n", claimed[:1])
        await queue.nack("n", claimed[1:2], errors=["no"])
        await minutes.tell(alone.context.pools)
        found = {one["topic"]: one for one in (await look(http))["topics"]}
    orders = found["orders"]
    counts = ("ready", "in_flight", "scheduled", "blocked", "dead", "count", "exact", "dead_exact")
    assert [orders[name] for name in counts] == [2, 2, 1, 0, 1, 5, True, True]
    assert orders["oldest_claimable_age_ms"] >= 0
    sums = {name: sum(minutes) for name, minutes in orders["minutes"].items()}
    assert sums == {"enqueued": 7, "claimed": 4, "completed": 1, "failed": 1, "dead_lettered": 1}
    assert {len(minutes) for minutes in orders["minutes"].values()} == {MINUTES}
    assert [trouble["code"] for trouble in orders["troubles"]] == ["dead_letters"]
    assert orders["troubles"][0]["text"] == "1 job became dead letters within 10 min, 50 % of the jobs that ended."
    log = found["log"]
    assert (log["type"], log["count"], log["minutes"], log["troubles"]) == ("log", 1, None, [])


async def test_it_lists_in_any_order_a_page_at_a_time(alone: Running) -> None:
    async with client(alone, "all") as http:
        for name, jobs in (("a", 1), ("b", 3), ("c", 0), ("d", 2)):
            await Topic(http, name).put()
            if jobs:
                await Topic(http, name).add(jobs)
        await http.post("/v0/topics/c/pause")
        assert await names(http, "") == ["a", "b", "c", "d"]
        assert await names(http, "?sort=ready") == ["b", "d", "a", "c"]
        assert (await names(http, "?sort=worst"))[0] == "c"
        assert (await names(http, "?sort=oldest"))[-1] == "c"
        assert await names(http, "?troubled=true") == ["c"]
        assert await names(http, "?prefix=d") == ["d"]
        http.headers.update(bearer("all"))
        pages = await every_page(http, "/v0/overview", "topics", 1, sort="ready")
        assert [one["topic"] for one in pages] == ["b", "d", "a", "c"]
        for query in ("sort=most", "troubled=2", "page_size=x", "cursor=x", "cursor=e30=", "prefix=%00", "nonsense=1"):
            refused(await http.get(f"/v0/overview?{query}"), 400, "invalid_request")


async def test_a_key_sees_its_own_topics(alone: Running) -> None:
    """And is told where there are more than are looked at."""
    async with client(alone, "all") as http:
        for name in ("mail.a", "mail.b", "post", "q", "r", "s", "t"):
            await Topic(http, name).put()
        assert await names(http, "", "mail") == ["mail.a", "mail.b"]
        assert await names(http, "?prefix=p", "mail") == []
        page = await look(http, "?page_size=1", "mail")
        assert page["topics"][0]["topic"] == "mail.a"
        last = await look(http, f"?page_size=1&cursor={page['next_cursor']}", "mail")
        assert ([one["topic"] for one in last["topics"]], "next_cursor" in last) == (["mail.b"], False)
        found = await look(http)
    assert (len(found["topics"]), found["topics_total"], found["truncated"]) == (5, 7, True)


async def test_minutes_that_take_too_long_are_not_told(
    alone: Running, own: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.features.stats.overview.PATIENCE_SECONDS", 0.2)
    db = await asyncpg.connect(own.url)
    try:
        async with client(alone, "all") as http, db.transaction():
            await Topic(http, "a").put()
            await db.execute("LOCK TABLE holdfast.topic_stats")
            (seen,) = (await look(http))["topics"]
    finally:
        await db.close()
    assert seen["minutes"] is None


@pytest.mark.parametrize(("claims", "code"), [(0, "nobody_claims"), (1, "waiting")])
async def test_whether_anybody_claims_is_asked_of_claims(alone: Running, claims: int, code: str) -> None:
    async with client(alone, "all") as http:
        queue = Topic(http, "a")
        await queue.put(wait_goal_ms=1)
        await queue.add(2)
        for _ in range(claims):
            job = (await queue.claim())["claimed"][0]
            await queue.nack("n", [job["$seq"]], errors=["not now"])
        await minutes.tell(alone.context.pools)
        (seen,) = (await look(http))["topics"]
    assert [trouble["code"] for trouble in seen["troubles"]] == [code]


async def test_dead_letters_are_said_of_the_topic_that_they_come_from(alone: Running) -> None:
    async with client(alone, "all") as http:
        mail, dead = Topic(http, "mail"), Topic(http, "mail.dead")
        await mail.put(max_deliveries=1, dead_letter=dead.name)
        await dead.put(wait_goal_ms=1)
        await mail.add(1)
        await mail.nack("n", [(await mail.take("n"))["$seq"]], errors=["no"])
        assert (await dead.counts())[0] == 1
        await minutes.tell(alone.context.pools)
        found = {one["topic"]: [it["code"] for it in one["troubles"]] for one in (await look(http))["topics"]}
    assert found == {"mail": ["dead_letters"], "mail.dead": []}


async def test_of_minutes_that_nobody_told_nothing_is_said(alone: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.features.stats.overview.MOST_UNCOUNTED", -1)
    async with client(alone, "all") as http:
        await Topic(http, "a").put(wait_goal_ms=1)
        await Topic(http, "a").add(1)
        (seen,) = (await look(http))["topics"]
    assert [trouble["code"] for trouble in seen["troubles"]] == ["waiting"]  # not that nobody claims


async def test_a_topic_is_late_by_its_own_goal(alone: Running) -> None:
    goals = {"any": 0, "day": 86_400_000, "short": 1, "usual": None}
    async with client(alone, "all") as http:
        for name, goal in goals.items():
            await Topic(http, name).put(wait_goal_ms=goal)
            await Topic(http, name).add(1)
            await Topic(http, name).claim(max=1, lease_ms=60_000)  # somebody works
            await Topic(http, name).add(1)
        await Topic(http, "log").put(type="log")
        await minutes.tell(alone.context.pools)
        found = {one["topic"]: one for one in (await look(http))["topics"]}
        assert await names(http, "?troubled=true") == ["short"]
        assert (await names(http, "?sort=worst"))[0] == "short"
    shown = {"any": 0, "day": 86_400_000, "log": None, "short": 1, "usual": 60_000}
    assert {name: one["wait_goal_ms"] for name, one in found.items()} == shown
    (trouble,) = found["short"]["troubles"]
    assert (trouble["code"], trouble["level"]) == ("waiting", "bad"), "ten times its goal, and more"


async def test_groups_that_dont_move_are_told_beside_others_that_do(alone: Running) -> None:
    """Three groups behind a worker with a lease of an hour, while the worker of the others acknowledges."""
    async with client(alone, "all") as http:
        queue = Topic(http, "orders")
        await queue.put(wait_goal_ms=200)
        await queue.append(*({"data": n, "group": f"g{n % 3}"} for n in range(12)))
        await queue.claim("hung", max=9, lease_ms=3_600_000)
        await queue.append(*({"data": n, "group": f"h{n}"} for n in range(3)))
        for job in (await queue.claim("well", max=9))["claimed"]:
            await queue.ack("well", [job["$seq"]])

        async def told() -> bool:
            await minutes.tell(alone.context.pools)
            [found] = (await look(http, "?troubled=true&sort=worst"))["topics"] or [{"troubles": []}]
            return "stuck_groups" in {one["code"] for one in found["troubles"]}

        assert await eventually(told)
        [seen] = (await look(http))["topics"]
        troubles = {one["code"]: one for one in seen["troubles"]}
        assert set(troubles) == {"stuck_groups", "long_leases"}
        many = r"the first job of each has been leased or failing for up to .*, and 9 jobs .*\."
        assert re.fullmatch(rf"3 groups don't move: {many}", troubles["stuck_groups"]["text"])
        assert troubles["long_leases"]["text"].startswith("3 leases last for up to ")
        assert seen["oldest_blocked_age_ms"] >= 200
        assert seen["oldest_claimable_age_ms"] is None
        [blocked, *_] = accepted(await http.get(f"{queue.path}/explain"))["reasons"]
        assert (blocked["code"], blocked["detail"]["groups"], blocked["detail"]["behind"]) == ("blocked", 3, 9)
        assert re.fullmatch(rf"3 groups don't move: {many}", blocked["message"])
        numbers = (await http.get("/metrics")).text
        assert 'holdfast_topic_stuck_groups{topic="orders"} 3' in numbers
        assert (await queue.post("release", node="hung"))["released"] == 3

        [gone, *_] = accepted(await http.get(f"{queue.path}/explain"))["reasons"]
        assert gone["code"] != "blocked"
