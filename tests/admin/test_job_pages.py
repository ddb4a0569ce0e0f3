"""What an operator sees of jobs, and does to them, one by one."""

from __future__ import annotations

import asyncio
import json
import re

import httpx
import pytest

from tests.admin.conftest import HOSTILE, HOUR
from tests.admin.operator import Operator, words
from tests.api.dialect import Body, Topic, accepted
from tests.conftest import Running

PAYLOAD = {"say": HOSTILE, "n": 1, "items": [{"sku": "a", "price": 0.1}, {}, []], "nothing": None}
RAW = '{"big": 12345678901234567890123, "same": 1, "same": 2, "rate": 0.10}'
SHOP = "topics/shop/jobs"


@pytest.fixture(scope="module")
async def shop(service: Running) -> None:
    """A queue that has jobs in every state."""
    async with httpx.AsyncClient(base_url=service.url, headers={"authorization": "Bearer root"}) as http:
        await Topic(http, "shop.dead").put()
        shop = Topic(http, "shop")
        await shop.put(max_deliveries=2, on_exhausted="dead_letter", dead_letter="shop.dead", result_ttl_ms=3_600_000)
        await shop.append({"data": PAYLOAD, "priority": 9, "tag": HOSTILE})
        await shop.append({"data": "done"}, {"data": "dies"}, {"data": "held"}, {"data": "back"})
        assert (await shop.claim("worker-1", max=5, lease_ms=HOUR))["count"] == 5
        await shop.ack("worker-1", [2], results=[{"total": 7}])
        await shop.fail("worker-1", [3], errors=[HOSTILE])
        await shop.extend("worker-1", [4], 3_600_000, progress=[{"percent": 40, "note": HOSTILE}])
        await shop.nack("worker-1", [1, 5], errors=["ValueError: no address", HOSTILE], delay_ms=3_600_000)
        content = f'{{"records": [{{"data": {RAW}, "tag": "raw"}}]}}'
        accepted(await http.post(shop.path, content=content, headers={"content-type": "application/json"}))
        await shop.append(
            {"data": HOSTILE, "content_type": "text/html"},
            {"data": {"$base64": "AAECA/9oaQ=="}, "content_type": "image/png"},
            {"data": 9, "tag": "late", "delay_ms": 3_600_000},
            {"data": 10, "group": "g"},
            {"data": 11, "group": "g"},
        )


async def job_of(topic: Topic, seq: int) -> Body:
    return accepted(await topic.http.get(f"{topic.path}/jobs/{seq}"))


async def test_payloads_are_shown_as_they_were_written(boss: Operator, shop: None) -> None:
    async def lines(seq: int) -> list[str]:
        (shown,) = (await boss.open(f"{SHOP}/{seq}")).main.findall(".//*[@class='json'][@aria-label='Payload']")
        return [words(one) for one in shown.iter() if one.tag in {"p", "summary"}]

    nested = ['"items": [', "{", '"sku": "a",', '"price": 0.1', "},", "{},", "[]", "],"]
    assert await lines(1) == ["{", f'"say": {json.dumps(HOSTILE)},', '"n": 1,', *nested, '"nothing": null', "}"]
    raw = ['"big": 12345678901234567890123,', '"same": 1,', '"same": 2,', '"rate": 0.10']
    assert await lines(6) == ["{", *raw, "}"]
    assert (await boss.open(f"{SHOP}/7")).all(".//pre[@class='raw']") == [HOSTILE]
    assert "00 01 02 03 ff 68 69" in (await boss.open(f"{SHOP}/8")).text


async def test_a_job_says_what_happened_and_why_it_waits(boss: Operator, shop: None) -> None:
    page = await boss.open(f"{SHOP}/5")
    assert "It is scheduled for" in page.text
    enqueued, returned = page.all(".//ol[@class='steps']/li")
    assert enqueued.startswith("Enqueued")
    assert re.match("Delivery 1 returned.* by worker-1", returned)
    assert HOSTILE in returned
    (at,) = page.main.iterfind(".//ul[@class='reasons']//time")  # a time among the words: a script turns it
    assert at.get("title") == re.sub(r"T(.{8}).*", r" \1 UTC", at.get("datetime", ""))
    page = await boss.open(f"{SHOP}/4")
    assert "It has been running on worker-1" in page.text
    assert [one.get("value") for one in page.main.iter("progress")] == ["40"]
    page = await boss.open(f"{SHOP}/2")
    assert "It is gone: acked at" in page.text
    assert '"total": 7' in page.text
    assert "Job 10 comes first in its group" in (await boss.open(f"{SHOP}/11")).text
    letter = await boss.follow(await boss.open(f"{SHOP}/3"), "job 1 of shop.dead")
    assert (await boss.follow(letter, "job 3 of shop")).path == f"/admin/{SHOP}/3"
    page = await boss.open(f"{SHOP}/99", 404)
    assert "There is no job 99" in page.text
    assert (await boss.follow(page, "Jobs of shop")).path == f"/admin/{SHOP}"


async def test_the_filter_is_in_the_address_and_says_what_is_wrong(boss: Operator, shop: None) -> None:
    page = await boss.open(SHOP)
    assert page.rows == ["11", "10", "9", "8", "7", "6", "5", "4", "1"]
    page = await boss.press(page, "Filter", q="state:scheduled tag:late")
    assert (page.rows, page.path) == (["9"], f"/admin/{SHOP}?q=state%3Ascheduled+tag%3Alate")
    assert "state:scheduled tag:late tenant:" in [one.get("value") for one in page.main.iter("option")]
    assert (await boss.follow(page, "all")).value("q") == "tag:late"
    page = await boss.follow(await boss.open(SHOP), "g")
    assert page.rows == ["11", "10"]
    assert (await boss.follow(page, "Seq")).rows == ["10", "11"]
    page = await boss.open(f"{SHOP}?q=state%3Aready+worker%3Aw1", 400)
    assert "A filter has no name worker." in page.fault("q")
    assert page.value("q") == "state:ready worker:w1"
    assert "priority must be a whole number." in (
        await boss.press(page, "Filter", q="priority:high", status=400)
    ).fault("q")
    assert (await boss.press(page, "Filter", q="7")).path == f"/admin/{SHOP}/7"


async def test_jobs_are_found_by_what_they_have(boss: Operator, queue: Topic) -> None:
    await queue.append(
        {"data": {"order": {"id": 17}, HOSTILE: "x"}, "priority": 9},
        {"data": {"order": {"id": "17"}, "total": 3}},
        {"data": {"order": {"id": 18}}, "priority": 9},
    )
    await queue.take("worker 7", lease_ms=HOUR)
    page = await boss.open(f"topics/{queue.name}/jobs")
    offered = {one.get("value") for one in page.main.iter("option")}
    assert {'node:"worker 7"', "data.total:", "priority:", "error:"} <= offered
    for text, found in (
        ("data.order.id=17", ["2", "1"]),
        ("data.order.id:17 priority:9", ["1"]),
        ('node:"worker 7"', ["1"]),
        ("error:boom", []),
    ):
        page = await boss.press(page, "Filter", q=text)
        assert page.rows == found, text


async def test_a_long_list_has_pages(boss: Operator, queue: Topic) -> None:
    await queue.add(120, tag="t")
    page = await boss.open(f"topics/{queue.name}/jobs?q=tag%3At")
    found = page.rows
    while page.link("Next"):
        page = await boss.follow(page, "Next")
        found += page.rows
    assert [int(seq) for seq in found] == list(range(120, 0, -1))
    assert (await boss.follow(page, "First")).rows[0] == "120"
    assert "No more jobs." in (await boss.open(f"topics/{queue.name}/jobs?after=1")).text


async def test_a_change_is_refused_beside_its_field_and_then_done(boss: Operator, queue: Topic) -> None:
    await queue.append({"data": 1, "tag": "old", "priority": 3})
    page = await boss.open(f"topics/{queue.name}/jobs/1")
    page = await boss.press(page, "Change", priority="11", tag="new <b>", delay="soon", status=400)
    assert page.fault("priority") == "priority must be 0 to 9."
    assert "soon is not a length of time" in page.fault("delay")
    assert page.value("tag") == "new <b>"
    assert (await job_of(queue, 1))["tag"] == "old"
    page = await boss.press(page, "Change", priority="9", delay="2h")
    job = await job_of(queue, 1)
    assert (job["tag"], job["priority"], job["state"]) == ("new <b>", 9, "scheduled")
    page = await boss.press(page, "Run now")
    job = await job_of(queue, 1)
    assert (job["tag"], job["priority"], job["state"]) == ("new <b>", 9, "ready")
    assert "No field was changed." in (await boss.press(page, "Change", status=400)).text
    cut = '{"n": 12345678901234567890,\n'
    page = await boss.press(page, "Change", data=cut, status=400)
    assert "The payload is not valid JSON" in page.text
    assert page.value("data") == cut
    await boss.press(page, "Change", data=f'{cut} "n": 2}}')
    assert f'"data":{cut} "n": 2}}' in (await queue.http.get(f"{queue.path}/jobs/1")).text


async def test_jobs_are_cloned_cancelled_and_requeued(boss: Operator, queue: Topic) -> None:
    dead = f"{queue.name}.dead"
    await queue.put(max_deliveries=1, on_exhausted="dead_letter", dead_letter=dead)
    await queue.append({"data": PAYLOAD, "tag": "a", "priority": 5, "tenant": "t", "meta": {"m": 1}, "key": "k"})
    page = await boss.press(await boss.open(f"topics/{queue.name}/jobs/1"), "Clone")
    assert page.path == f"/admin/topics/{queue.name}/jobs/2"
    first, twin = [await job_of(queue, seq) for seq in (1, 2)]
    assert "key" not in twin
    same = ("data", "tag", "priority", "tenant", "meta", "state")
    assert [twin[name] for name in same] == [first[name] for name in same]
    assert "It is gone: cancelled at" in (await boss.press(page, "Cancel")).text
    assert (await queue.http.get(f"{queue.path}/jobs/2")).status_code == 404
    page = await boss.open(f"topics/{queue.name}/jobs/1")
    await queue.take("w", lease_ms=HOUR)  # while the page is looked at
    page = await boss.press(page, "Cancel")
    assert "It was cancelled, but w still holds it" in page.text
    assert (await job_of(queue, 1))["cancelled"] is True

    (seq,) = (await queue.append({"data": 3, "key": "mine"}))["seqs"]
    await queue.take("w", lease_ms=HOUR)
    await queue.fail("w", [seq], errors=["boom"])
    letter = await boss.follow(await boss.open(f"topics/{queue.name}/jobs/{seq}"), f"job 1 of {dead}")
    (rival,) = (await queue.append({"data": 4, "key": "mine"}))["seqs"]
    refused = await boss.press(letter, "Requeue", status=409)
    assert "Not requeued: a pending message has the same key." in refused.text
    page = await boss.open(f"topics/{queue.name}/jobs/{rival}")
    await queue.take("w", lease_ms=HOUR)
    assert "leased" in (await boss.press(page, "Change", priority="4", status=409)).text
    await queue.ack("w", [rival])
    page = await boss.press(letter, "Requeue")
    assert page.path == f"/admin/topics/{queue.name}/jobs/{seq}"
    assert (await job_of(queue, seq))["deliveries"] == 0


async def test_leases_are_taken_back_from_a_job_a_group_and_a_worker(boss: Operator, queue: Topic) -> None:
    await queue.append({"data": 1, "group": "g"}, {"data": 2, "group": "g"}, {"data": 3}, {"data": 4})
    await queue.claim("hung", max=9, lease_ms=HOUR)
    await boss.press(await boss.open(f"topics/{queue.name}/jobs/3"), "Release")
    job = await job_of(queue, 3)
    assert (job["state"], job["last_error"]) == ("ready", "An operator took the lease back.")
    page = await boss.open(f"topics/{queue.name}")
    after = await boss.press(page, "do-release-group-1")
    assert [(await queue.take("well", lease_ms=HOUR))["$seq"] for _ in range(2)] == [3, 1]
    assert (
        "No lease was released: hung holds no job of group g"
        in (await boss.press(page, "do-release-group-1", status=404)).text
    )
    await boss.press(after, "do-release-worker-1")
    assert (await queue.ack("hung", [1, 3, 4]))["acked"] == 0
    assert (await queue.take("well", lease_ms=HOUR))["$seq"] == 4
    assert f"hung holds no job in {queue.name}." in (await boss.press(after, "do-release-worker-1", status=404)).text


async def test_who_only_reads_sees_all_and_has_no_buttons(reader: Operator) -> None:
    assert len((await reader.open("topics/mail.outbound/jobs")).rows) == 12
    page = await reader.open("topics/mail.outbound/jobs/1")
    assert list(page.main.iter("form")) == []
    assert "This user has no grant that allows" in (await reader.open("topics/orders/jobs/1", 403)).text


async def test_a_list_that_takes_too_long_says_so(boss: Operator, shop: None, service: Running) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("app.features.jobs.list_page.SECONDS", 1)
        async with service.context.pools.rest.acquire() as db, db.transaction():
            await db.execute("LOCK TABLE holdfast.jobs")
            page = await asyncio.wait_for(boss.open(SHOP), 30)
    assert "The jobs are unavailable right now." in page.text
