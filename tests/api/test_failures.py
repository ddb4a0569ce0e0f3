"""What jobs that are out have failed with, by the kind of their errors: counted exactly, shown, purged."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import httpx
import pytest

from tests.api.dialect import Body, Topic, accepted, eventually, refused
from tests.api.keyring import Services, bearer, client, make
from tests.api.messages.client import done
from tests.api.people import add_user, basic
from tests.queue.tallies import tallied

if TYPE_CHECKING:
    from app.base.db.pool import Pools
    from app.kernel.topics.cache import Policies
    from tests.api.conftest import Serve


async def fail(queue: Topic, errors: Sequence[str | None]) -> None:
    """So many jobs, each of which ends with its error."""
    await queue.add(len(errors))
    jobs = (await queue.claim(max=1_000))["claimed"]
    answer = await queue.nack("n", sorted(job["$seq"] for job in jobs), errors=errors)
    assert answer["nacked"] == len(errors)


async def failures(queue: Topic, **query: str | int) -> list[Body]:
    answer = accepted(await queue.http.get(f"{queue.path}/failures", params=query))
    assert (answer["topic"], answer["more"]) == (queue.name, False)
    shown: list[Body] = answer["failures"]
    return shown


async def counts(queue: Topic, **query: str | int) -> dict[str, int]:
    return {one["title"]: one["count"] for one in await failures(queue, **query)}


async def purge(queue: Topic, cluster: str) -> int:
    answer = accepted(await queue.http.delete(f"{queue.path}/failures/{cluster}"))
    assert (answer["topic"], answer["cluster"]) == (queue.name, cluster)
    count: int = answer["deleted"]
    return count


@pytest.fixture(params=["dead letters", "in place"])
async def failing(request: pytest.FixtureRequest, queue: Topic) -> Topic:
    """A queue whose jobs are out after one delivery."""
    where = {"dead_letter": f"{queue.name}.dlq"} if request.param == "dead letters" else {"on_exhausted": "fail"}
    await queue.put(max_deliveries=1, **where)
    return queue


async def test_jobs_that_fail_in_some_ways_are_as_many_clusters_and_a_purge_takes_one(
    failing: Topic, pools: Pools, policies: Policies
) -> None:
    """What makes one kind of two texts is tests/queue/test_error_titles.py."""
    await fail(failing, [error for n in range(100) for error in (f"A: {n}", f"B: {n}", f"C: {n}", "D")[: n % 5]])
    expected = {"A: *": 80, "B: *": 60, "C: *": 40, "D": 20}
    shown = await failures(failing)
    assert [(one["title"], one["count"]) for one in shown] == list(expected.items())
    assert len({one["cluster"] for one in shown}) == 4
    for one in shown:
        assert one["at_least"] is False
        assert one["deliveries"] == {"min": 1, "avg": 1.0, "max": 1}
        assert 0 < one["first_seen"] <= one["last_seen"]
        assert one["example"]["error"]
    first, second, *_ = shown
    assert await purge(failing, first["cluster"]) == 80
    assert await purge(failing, first["cluster"]) == 0
    answer = await failing.http.post(f"/api/topics/{failing.name}/purge", json={"cluster": second["cluster"]})
    assert done(answer) == {"deleted": 60}
    assert await counts(failing) == {"C: *": 40, "D": 20}
    holder = shown[0]["example"]["topic"]
    policies.forget(holder)
    policy = await policies.queue(holder)
    assert await tallied(pools.rest, policy)
    deleted = "SELECT count(*) FROM holdfast.lease_events WHERE topic_id = $1 AND event = 'deleted'"
    assert await pools.rest.fetchval(deleted, policy.topic.id) == 140
    page = (await failing.http.get("/v0/admin/audit", params={"subject": failing.name})).json()
    purged = [entry["detail"]["cluster"] for entry in page["entries"] if entry["action"] == "cluster.purged"]
    assert sorted(purged) == sorted([first["cluster"]] * 2 + [second["cluster"]])


async def test_one_kind_is_requeued_and_leaves_its_cluster(failing: Topic) -> None:
    await fail(failing, [f"A: {n}" for n in range(30)] + [f"B: {n}" for n in range(20)])
    clusters = {one["title"]: one["cluster"] for one in await failures(failing)}
    dry = await failing.post("requeue", filter={"cluster": clusters["B: *"]}, dry_run=True)
    assert (dry["matched"], dry["exact"]) == (20, True)
    assert await counts(failing) == {"A: *": 30, "B: *": 20}
    begun = await failing.http.post(f"{failing.path}/requeue", json={"filter": {"cluster": clusters["B: *"]}})
    assert begun.status_code == 202, begun.text
    await failing.until_counts(20, 0)
    assert await counts(failing) == {"A: *": 30}
    # They are jobs again, with all their deliveries; those that fail in another way are of another kind then.
    jobs = (await failing.claim(max=100))["claimed"]
    assert sorted(job["data"] for job in jobs) == list(range(31, 51))
    await failing.nack("n", sorted(job["$seq"] for job in jobs), errors=["C: again"] * 20)
    assert await counts(failing) == {"A: *": 30, "C: again": 20}


async def test_an_error_may_be_anything_or_none(failing: Topic) -> None:
    """What is shown is a line; the example is the text as it was."""
    forged = 'x\r\n2026-01-01 INFO all is well\x1b[2J"\u2028<script>'
    long = "ValueError: " + "größe " * 1_000
    silent = "No error recorded"
    await fail(failing, [forged, long[:7_000], long[:7_000] + "!", None, ""])
    await failing.add(1)
    await failing.claim(lease_ms=100)

    async def out() -> bool:
        await failing.claim()
        return await counts(failing) == {"x": 1, long[:200].strip(): 2, silent: 3}

    await eventually(out)
    shown = {one["title"]: one for one in await failures(failing)}
    assert (shown["x"]["example"]["error"], shown[silent]["example"]["error"]) == (forged, None)
    assert await purge(failing, shown[silent]["cluster"]) == 3
    assert silent not in await counts(failing)


async def test_what_has_left_is_counted_no_more(queue: Topic) -> None:
    """Acked, returned, deleted: the counts follow at once. A dead letter's kind is that of its last error."""
    dead = Topic(queue.http, f"{queue.name}.dlq")
    await queue.put(max_deliveries=2, dead_letter=dead.name)
    await queue.add(6)
    for error in ("A: first try", "B: 1"):
        jobs = (await queue.claim(max=6))["claimed"]
        await queue.nack("n", sorted(job["$seq"] for job in jobs), errors=[error] * 6)
        assert await counts(queue) == ({} if error.startswith("A") else {"B: *": 6})
    assert (await failures(queue))[0]["deliveries"] == {"min": 2, "avg": 2.0, "max": 2}
    assert await failures(dead) == await failures(queue)

    jobs = sorted((await dead.claim(max=3))["claimed"], key=lambda job: job["$seq"])
    assert await counts(queue) == {"B: *": 6}, "it is out, whoever works on it"
    await dead.ack("n", [jobs[0]["$seq"]])
    await dead.nack("n", [jobs[1]["$seq"]], errors=["C: 2"])
    await dead.nack("n", [jobs[2]["$seq"]])
    assert await counts(queue) == {"B: *": 4, "C: *": 1}
    [held] = (await dead.claim(max=1))["claimed"]
    for one in await failures(queue):
        await purge(queue, one["cluster"])
    assert await failures(queue) == []
    assert (await dead.ack("n", [held["$seq"]]))["skipped"] == [held["$seq"]], "its lease is lost"
    assert await dead.counts() == (0, 0)


async def test_topics_that_share_their_dead_letters_have_failures_of_their_own(
    http: httpx.AsyncClient, topic: str
) -> None:
    one, two, dead = (Topic(http, f"{topic}.{name}") for name in ("one", "two", "dead"))
    for queue, errors in ((one, ["A: 1", "A: 2", "B: 1"]), (two, ["A: 3", "C: 1"])):
        await queue.put(max_deliveries=1, dead_letter=dead.name)
        await fail(queue, errors)
    assert await counts(one) == {"A: *": 2, "B: *": 1}
    assert await counts(two) == {"A: *": 1, "C: *": 1}
    assert await counts(dead) == {"A: *": 3, "B: *": 1, "C: *": 1}
    cluster = (await failures(dead))[0]["cluster"]
    assert await purge(two, cluster) == 1
    assert await counts(one) == {"A: *": 2, "B: *": 1}
    assert await purge(dead, cluster) == 2
    assert await counts(dead) == {"B: *": 1, "C: *": 1}
    # One that became a dead letter and then failed where it was is still one.
    await dead.put(max_deliveries=1, on_exhausted="fail")
    job = await dead.take()
    await dead.nack("n", [job["$seq"]], errors=["D: 1"])
    assert (await counts(dead))["D: *"] == 1
    assert sum((await counts(dead)).values()) == 2


async def test_it_can_be_asked_for_a_part(failing: Topic) -> None:
    await fail(failing, ["A: 1"] * 3 + ["B: 1"] * 2 + ["C: 1"])
    last = max(one["last_seen"] for one in await failures(failing))
    for limit in (1, 2, 0, -7):
        answer = accepted(await failing.http.get(f"{failing.path}/failures", params={"limit": limit}))
        assert [one["title"] for one in answer["failures"]] == ["A: *", "B: *"][: max(limit, 1)]
        assert answer["more"] is True
    assert len(await failures(failing, limit=3)) == 3
    while (now := datetime.now(UTC)).timestamp() * 1000 <= last + 1:
        await asyncio.sleep(0.001)
    await fail(failing, ["A: 9", "D: 1"])
    assert await counts(failing, since=now.isoformat()) == {"A: *": 1, "D: *": 1}


async def test_what_makes_no_sense_is_refused(queue: Topic) -> None:
    http, url = queue.http, f"{queue.path}/failures"
    for query in ({"since": "2026-01-01T00:00:00"}, {"cursor": "x"}):
        refused(await http.get(url, params=query), 400, "invalid_request")
    refused(await http.delete(f"{url}/{'A' * 16}"), 400, "invalid_request")
    both = {"cluster": "a" * 16, "statuses": ["pending"]}
    refused(await http.post(f"/api/topics/{queue.name}/purge", json=both), 400, "invalid_request")


async def test_a_key_that_is_not_for_the_dead_letters_learns_nothing_of_them(
    serve: Serve, new_database: Callable[[], Awaitable[str]], topic: str
) -> None:
    service = await (await Services.make(serve, new_database)).start(api_keys="root", bcrypt_cost=10)
    async with client(service, "root") as root, client(service) as http:
        queue = Topic(root, f"mine.{topic}")
        await queue.put(max_deliveries=1, dead_letter=f"theirs.{topic}")
        await fail(queue, ["A: secret"])
        [one] = await failures(queue)
        secret = (await make(root, prefixes=["mine."]))["secret"]
        ann = (await add_user(root, "read mine.*", "admin mine.*"))["username"]
        for headers in (bearer(secret), basic(ann)):
            refused(await http.get(f"{queue.path}/failures", headers=headers), 403, "forbidden")
            refused(await http.delete(f"{queue.path}/failures/{one['cluster']}", headers=headers), 403, "forbidden")
            body, purging = {"cluster": one["cluster"]}, f"/api/topics/{queue.name}/purge"
            refused(await http.post(purging, json=body, headers=headers), 403, "forbidden")
        assert await counts(queue) == {"A: secret": 1}
