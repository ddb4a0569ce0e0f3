"""What the list of jobs is narrowed by, and cancels of all that match, as operations."""

from __future__ import annotations

import asyncio

import pytest

from app.kernel import jobs as shown
from tests.api.dialect import Body, Topic, accepted, refused
from tests.api.test_changes import listed
from tests.api.test_requeue import ended
from tests.conftest import Running

BIG = "12345678901234567890123"


async def test_by_priority_holder_and_error(queue: Topic) -> None:
    await queue.append({"data": 1}, {"data": 2, "priority": 9}, {"data": 3, "priority": 9}, {"data": 4, "priority": 5})
    await queue.take("w1")
    await queue.take("w2")
    await queue.nack("w2", [3], errors=["Timeout after 30 s: smtp-7"], delay_ms=3_600_000)
    for parameters, seqs in (
        ({"priority": 9}, [2, 3]),
        ({"priority": 0}, [1]),
        ({"priority": 9, "state": "leased"}, [2]),
        ({"node": "w1"}, [2]),
        ({"node": "w1", "state": "ready"}, []),
        ({"node": "w1", "state": "leased", "priority": 9}, [2]),
        ({"node": "w2"}, []),  # it held one, and does no more
        ({"error": "smtp-7"}, [3]),
        ({"error": "SMTP-7"}, []),
        ({"error": "30 s", "state": "scheduled"}, [3]),
    ):
        assert await listed(queue, order="oldest", **parameters) == seqs, parameters


async def test_by_what_is_in_payloads(queue: Topic) -> None:
    raw = f'{{"n": {BIG}, "rate": 0.10, "same": 1, "same": 2, "on": true, "none": null, "a.b": {{"c d": "x"}}}}'
    content = f'{{"records": [{{"data": {raw}}}]}}'
    accepted(await queue.http.post(queue.path, content=content, headers={"content-type": "application/json"}))
    await queue.append(
        {"data": {"order": {"id": 17, "items": [{"sku": "a"}, {"sku": "17"}]}}},
        {"data": {"order": {"id": "17"}}},
        {"data": {"order": 17}},
        {"data": [["17"]]},
        {"data": "{\"order\": {\"id\": 17}}", "content_type": "text/plain"},
        {"data": {"order": {"id": 17}}, "content_type": "application/vnd.shop+json; v=1"},
        {"data": {"say": "a=b \"ü\""}},
    )  # fmt: skip
    for data, seqs in (
        ("order.id=17", [2, 3, 7]),
        ("order=17", [4]),
        ("order.items.1.sku=17", [2]),
        ("order.items.9.sku=17", []),
        ("0.0=17", [5]),
        (f"n={BIG}", [1]),
        (f"n={BIG[:-1]}4", []),
        ("n=1.2345678901234568e22", []),
        ("rate=0.10", [1]),
        ("rate=0.1", []),
        ("same=2", [1]),
        ("on=true", [1]),
        ("none=null", [1]),
        ("none=", []),
        ("order.items=", []),
        (r"a\.b.c d=x", [1]),
        ('say=a=b "ü"', [8]),
        ("order.id.x=17", []),
    ):
        assert await listed(queue, order="oldest", data=data) == seqs, data
    assert await listed(queue, data=["order.id=17", "order.items.0.sku=a"]) == [2]
    assert await listed(queue, data="order.id=17", state="leased") == []


async def test_what_can_not_be_read_is_no_match(service: Running, queue: Topic) -> None:
    await queue.append(*[{"data": {"a": 1}} for _ in range(6)])
    for seq, payload in enumerate((b'{"a": 1', b"\xff\xfe", b'{"a": 1, "b": "\\u0000"}', b"[" * 100_000, b""), 1):
        await service.context.pools.rest.execute(
            "UPDATE holdfast.jobs SET payload = $3 WHERE topic = $1 AND seq = $2", queue.name, seq, payload
        )
    page = await queue.http.get(f"{queue.path}/jobs", params={"data": "a=1", "state": "scheduled"})
    assert page.json()["jobs"] == []
    dry = await queue.http.post(
        f"{queue.path}/operations", json={"kind": "cancel", "filter": {"data": ["a=1"]}, "dry_run": True}
    )
    assert accepted(dry)["matched"] == 1, "the sixth"


async def test_a_page_looks_at_so_much_and_the_next_one_goes_on(queue: Topic, monkeypatch: pytest.MonkeyPatch) -> None:
    await queue.append(*[{"data": {"n": n, "pad": "x" * 100}} for n in range(1, 31)])
    for name, bound in (("PAGE_BYTES", 500), ("LOOKED_AT", 7)):
        with monkeypatch.context() as patch:
            patch.setattr(shown, name, bound)
            for order, n in (("oldest", 29), ("newest", 2)):
                first = accepted(await queue.http.get(f"{queue.path}/jobs", params={"data": f"n={n}", "order": order}))
                assert first["jobs"] == []
                assert first["next_cursor"], "there is more to look at"
                assert await listed(queue, data=f"n={n}", order=order) == [n]
            assert await listed(queue, data="pad=" + "x" * 100, limit=4) == list(range(30, 0, -1))
            held = accepted(await queue.http.get(f"{queue.path}/jobs", params={"data": "n=1", "state": "leased"}))
            assert (held["jobs"], held["next_cursor"]) == ([], None)


async def begin(queue: Topic, status: int = 202, **fields: object) -> Body:
    answer = await queue.http.post(f"{queue.path}/operations", json={"kind": "cancel", **fields})
    assert answer.status_code == status, answer.text
    body: Body = answer.json()
    return body


async def test_a_cancel_of_many_counts_first_and_says_how_far_it_is(queue: Topic) -> None:
    await queue.add(40, tag="a")
    await queue.add(3, tag="b")
    await queue.claim("w1", max=2)
    dry = await begin(queue, 200, filter={"tag": "a"}, dry_run=True)
    assert {**dry, "performance": 0} == {"id": None, "matched": 40, "exact": True, "performance": 0}
    assert await queue.counts() == (41, 2)
    begun = await begin(queue, filter={"tag": "a"})
    assert (begun["matched"], begun["exact"]) == (40, True)
    over = await ended(queue.http, begun["id"])
    names = ("kind", "state", "matched", "gone", "marked", "requeued", "skipped", "reason")
    assert [over[name] for name in names] == ["cancel", "done", 40, 38, 2, 0, 0, None]
    assert await queue.counts() == (3, 2)
    assert (await queue.extend("w1", [1, 2], 60_000))["cancelled"] == [1, 2]
    found = accepted(await queue.http.get(f"{queue.path}/operations"))["operations"]
    assert [(one["id"], one["kind"]) for one in found] == [(begun["id"], "cancel")]
    entries = accepted(await queue.http.get("/v0/admin/audit", params={"subject": queue.name}))["entries"]
    last, first = entries[:2]
    assert (first["action"], last["action"]) == ("cancel.started", "cancel.ended")
    assert first["detail"] == {"id": begun["id"], "matched": 40, "rate": 0, "filter": {"tag": "a"}}
    ended_so = {"state": "done", "gone": 38, "marked": 2, "skipped": 0, "reason": None}
    assert last["detail"] == {"id": begun["id"], **ended_so}


async def test_a_cancel_of_many_keeps_its_rate_and_can_be_stopped(queue: Topic) -> None:
    await queue.add(100)
    young = await begin(queue, filter={"older_than_ms": 3_600_000})
    assert (young["matched"], (await ended(queue.http, young["id"]))["gone"]) == (0, 0)
    begun = await begin(queue, filter={"older_than_ms": 0, "state": "ready"}, rate=10)
    await queue.add(5)  # later than it began: not meant
    while (at := accepted(await queue.http.get(f"/v0/operations/{begun['id']}")))["gone"] < 3:
        assert at["state"] == "running"
        await asyncio.sleep(0.02)
    accepted(await queue.http.post(f"/v0/operations/{begun['id']}/cancel"))
    over = await ended(queue.http, begun["id"])
    assert over["state"] == "cancelled"
    assert 3 <= over["gone"] < 100
    seconds = (over["ended_at"] - over["started_at"]) / 1_000
    assert over["gone"] <= 10 * (seconds + 1), "as fast as it may be"
    assert await queue.counts() == (105 - over["gone"], 0)
    entries = accepted(await queue.http.get("/v0/admin/audit", params={"subject": queue.name}))["entries"]
    assert [one["action"] for one in entries[:3]] == ["cancel.ended", "cancel.cancelled", "cancel.started"]


async def test_of_all_that_is_there_however_much_is_looked_at(queue: Topic, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shown, "LOOKED_AT", 10)
    await queue.append(*[{"data": {"n": n % 50}} for n in range(150)])
    await queue.claim("w1", max=40)
    begun = await begin(queue, filter={"data": ["n=7"]})
    over = await ended(queue.http, begun["id"])
    assert (over["gone"], over["marked"]) == (2, 1)
    begun = await begin(queue, filter={"node": "w1", "state": "leased"})
    over = await ended(queue.http, begun["id"])
    assert (over["matched"], over["exact"], over["gone"], over["marked"]) == (40, True, 0, 40)
    await queue.add(5)
    begun = await begin(queue, filter={"state": "ready"})
    assert (await ended(queue.http, begun["id"]))["gone"] == 113


async def test_a_topic_that_goes_ends_it(queue: Topic) -> None:
    await queue.add(200)
    begun = await begin(queue, filter={"older_than_ms": 0}, rate=20)
    await queue.drop()
    await queue.put()
    await queue.add(3)
    assert (await ended(queue.http, begun["id"]))["state"] == "done"
    assert await queue.counts() == (3, 0)


async def test_filters_and_cancels_that_make_no_sense(queue: Topic) -> None:
    five = "&".join(f"data=a={n}" for n in range(5))
    for query in ("priority=40000", "data=x", "data==x", "data=.a=x", "data=a..b=x", "data=a=%00", five):
        refused(await queue.http.get(f"{queue.path}/jobs?{query}"), 400, "invalid_request")
    bodies: list[Body] = [
        {"kind": "cancel"},
        {"kind": "cancel", "filter": {}},
        {"kind": "cancel", "filter": {"state": "failed"}},
        {"kind": "cancel", "filter": {"data": ["a"]}},
        {"kind": "cancel", "filter": {"tag": "a"}, "seqs": [1]},
    ]
    for body in bodies:
        refused(await queue.http.post(f"{queue.path}/operations", json=body), 400, "invalid_request")
