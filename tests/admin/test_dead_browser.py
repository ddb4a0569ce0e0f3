"""The dead letters of a queue in a real browser: kinds and examples, requeues of one to ten thousand, deletion; and two
of the tasks that an operator comes with, from home, with their clicks counted."""

from __future__ import annotations

import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

import httpx
import pytest
from axe_playwright_python.async_playwright import Axe
from playwright.async_api import Browser, BrowserContext, expect

from tests.admin.browser import PATIENCE_MS, Hand, signed_in, tab
from tests.admin.conftest import BOSS, HOSTILE, READER
from tests.admin.test_browser import sign_in
from tests.api import minutes
from tests.api.dialect import Body, Topic, eventually
from tests.api.keyring import Services, bearer, client, make
from tests.api.people import add_user
from tests.conftest import Running

if TYPE_CHECKING:
    from tests.api.conftest import Serve

MANY, RATE, FIRST = 10_000, 200, 10
GOOD = {"order": 1, "address": {"city": "Bern", "zip": 3011}, "note": "ring twice"}
BAD = {"order": 2, "address": {"city": "Bern"}, "note": HOSTILE}
TRACEBACK = 'Traceback (most recent call last):\n  File "w.py", line 3, in <module>\nKeyError: {}'


async def kill(topic: Topic, records: Sequence[Body], error: str, node: str = "w-7") -> None:
    """Jobs whose only delivery ends with this error."""
    for start in range(0, len(records), 1_000):
        part = records[start : start + 1_000]
        await topic.append(*part)
        seqs = [job["$seq"] for job in (await topic.claim(node, max=1_000))["claimed"]]
        assert len(seqs) == len(part)
        await topic.nack(node, seqs, errors=[error.format(n) for n in seqs])


@pytest.fixture(scope="module")
async def failing(serve: Serve, new_database: Callable[[], Awaitable[str]]) -> Running:
    """A service where three topics have jobs that are out: orders, with an older kind that is larger than the one that
    grows; paged, with more than two pages; and stays, where they stay. calm has none."""
    services = await Services.make(serve, new_database)
    service = await services.start(api_keys="root", bcrypt_cost=10, trusted_proxies="127.0.0.0/8")
    async with client(service, "root") as http:
        await add_user(http, name=BOSS, is_admin=True)
        await add_user(http, "read orders", name=READER)
        orders = Topic(http, "orders")
        await orders.put(max_deliveries=1, dead_letter="orders.dead", replayable=True, replay_window_ms=3_600_000)
        await orders.append({"data": GOOD})
        await orders.ack("w-1", [(await orders.take("w-1"))["$seq"]])
        await kill(orders, [{"data": {"order": n}} for n in range(5)], "ValueError: an old story")
        await kill(orders, [{"data": BAD, "key": f"k-{n}", "tag": HOSTILE[:60]} for n in range(3)], TRACEBACK + HOSTILE)
        stays = Topic(http, "stays")
        await stays.put(max_deliveries=1, on_exhausted="fail")
        await kill(stays, [{"data": n} for n in range(4)], "no such host")
        await Topic(http, "calm").put(max_deliveries=1, dead_letter="calm.dead")
        paged = Topic(http, "paged")
        await paged.put(max_deliveries=1, dead_letter="paged.dead")
        await kill(paged, [{"data": n} for n in range(120)], "Timeout after {} s")
    # A day that no test can wait for.
    await services.sql(
        "UPDATE holdfast.jobs SET failed_at = failed_at - interval '1 day', "
        "dlq_moved_at = dlq_moved_at - interval '1 day' WHERE last_error LIKE '%old story'"
    )
    await minutes.tell(service.context.pools)
    return service


@pytest.fixture(scope="module")
async def operator(browser: Browser, failing: Running) -> AsyncIterator[BrowserContext]:
    """A viewer who has signed in as the admin."""
    async with signed_in(browser, failing, BOSS) as context:
        yield context


@pytest.fixture
async def http(failing: Running) -> AsyncIterator[httpx.AsyncClient]:
    async with client(failing, "root") as one:
        yield one


async def test_how_its_pages_look(operator: BrowserContext, axe: Axe, failing: Running) -> None:
    async with tab(operator, failing.url) as one:
        faults = []
        for name, path in {
            "dead-none": "/admin/topics/calm/dead",
            "dead": "/admin/topics/orders/dead",
            "dead-jobs": "/admin/topics/orders/dead/jobs",
            "dead-purge": "/admin/topics/orders.dead/dead/purge",
            "dead-requeue": "/admin/topics/orders/dead/requeue?error=story",
        }.items():
            await one.open(path)
            faults += await one.looked_at(axe, name)
        await one.open("/admin/topics/orders/dead")
        await one.page.get_by_role("link", name="KeyError").click()
        await one.page.wait_for_selector("#example")
        faults += await one.looked_at(axe, "dead-cluster")
        assert faults == []


async def test_task_which_error_grew_and_an_example_of_it(operator: BrowserContext, failing: Running) -> None:
    async with tab(operator, failing.url) as one:
        hand = Hand(one)
        await one.open("/admin/")
        await hand.goes(one.page.locator("li", has_text="orders").get_by_role("link", name="became dead letters"))
        kinds = one.page.locator("td.name [data-row]", has_text="Error")
        assert await kinds.count() == 2
        row = one.page.locator("tr", has=one.page.locator(".name")).first  # of fewer jobs than the other, and of today
        await expect(row).to_contain_text("KeyError")
        await expect(row).to_contain_text("+3")
        await expect(row).to_contain_text("new")
        await hand.goes(kinds.first)
        assert hand.was_quick()
        example = one.page.locator("#example")
        await expect(example).to_contain_text('File "w.py", line 3, in <module>')
        await expect(example).to_contain_text("w-7")
        # Beside a payload that went well.
        assert [text.strip() for text in await example.locator("td.out del").all_inner_texts()] == [
            '"order": 2,',
            '"city": "Bern"',
            '"note": "' + HOSTILE.replace('"', '\\"') + '"',
        ]
        assert [text.strip() for text in await example.locator("td.in ins").all_inner_texts()] == [
            '"order": 1,',
            '"city": "Bern",',
            '"zip": 3011',
            '"note": "ring twice"',
        ]
        await expect(example).to_contain_text("completed")
        assert await one.page.title() == "Failed jobs of orders · Holdfast"
        assert await one.page.locator("script:not([src])").count() == 0


async def test_task_ten_thousand_with_a_canary_at_two_hundred_a_second(
    operator: BrowserContext, axe: Axe, failing: Running, http: httpx.AsyncClient
) -> None:
    bulk = Topic(http, f"bulk-{secrets.token_hex(4)}")
    await bulk.put(max_deliveries=1, dead_letter=f"{bulk.name}.dead")
    await kill(bulk, [{"data": n} for n in range(MANY)], "Timeout after {} s")
    await minutes.tell(failing.context.pools)
    async with tab(operator, failing.url) as one:
        hand = Hand(one)
        await one.open("/admin/")
        await hand.goes(one.page.locator("li", has_text=bulk.name).get_by_role("link", name="became dead letters"))
        await hand.goes(one.page.get_by_role("link", name="Requeue all…"))
        await one.wait_for(f"Requeue about {MANY:,} jobs")
        await hand.fills("#rate", str(RATE))
        assert await one.page.input_value("#first") == str(FIRST)
        await hand.goes(one.page.get_by_role("button", name="Requeue"))
        assert hand.was_quick()
        which = one.page.url.rpartition("/")[2]

        async def so_far() -> Body:
            found: Body = (await http.get(f"/v0/operations/{which}")).json()
            return found

        for _ in range(FIRST):
            await bulk.ack("w-8", [(await bulk.take("w-8"))["$seq"]])

        async def back(count: int) -> bool:
            found = await so_far()
            return bool(found["state"] == "running" and found["requeued"] >= count)

        await eventually(lambda: back(FIRST + 1), 30)
        began, before = time.monotonic(), (await so_far())["requeued"]
        await eventually(lambda: back(before + 2 * RATE), 60)
        # Of a batch's time it may be ahead; a machine that stalls makes it later, and never faster.
        assert time.monotonic() - began > 1.5
        await expect(one.page.locator("#live")).to_contain_text("Ends in about", timeout=PATIENCE_MS)  # by itself
        assert "UTC" not in await one.page.inner_text("#live")  # what came by itself is in the viewer's zone, too
        await one.keep("dead-operation-1280-light")
        await one.page.get_by_role("button", name="Cancel").click()
        async with one.page.expect_navigation():
            await one.page.locator("#confirm [value=yes]").click()
        await expect(one.page.locator("#live .badge").first).to_have_text("cancelled", timeout=PATIENCE_MS)
        ended = await so_far()
        assert ended["state"] == "cancelled"
        assert ended["requeued"] < MANY
        assert await one.looked_at(axe, "dead-operation") == []
        trail = (await http.get(f"/v0/admin/audit?subject={bulk.name}&page_size=10")).json()["entries"]
        told = {entry["action"]: entry["actor_name"] for entry in trail}
        assert told["requeue.started"] == told["requeue.cancelled"] == BOSS
        await one.open(f"/admin/topics/{bulk.name}/dead")
        await expect(one.page.locator("tr", has_text=BOSS)).to_contain_text("cancelled")


async def waiting(topic: Topic, count: int) -> None:
    async def fact() -> bool:
        return (await topic.counts())[0] == count

    await eventually(fact, 30)


async def test_one_is_requeued_and_some_that_are_picked(
    operator: BrowserContext, failing: Running, http: httpx.AsyncClient
) -> None:
    stays = Topic(http, "stays")
    async with tab(operator, failing.url) as one:
        hand = Hand(one)
        await one.open("/admin/topics/stays/dead/jobs")
        assert await one.page.locator("[data-row]").count() == 4
        await hand.goes(one.page.get_by_role("button", name="Requeue selected…"))
        await one.wait_for("No job is selected.")
        await one.open("/admin/topics/stays/dead/jobs")
        for box in (await one.page.get_by_role("checkbox").all())[:2]:
            await box.check()
        await hand.goes(one.page.get_by_role("button", name="Requeue selected…"))
        await one.wait_for("Requeue 2 jobs")
        await one.page.fill("#rate", "fast")
        await hand.goes(one.page.locator("#do-requeue"))
        await one.wait_for("A whole number from 0 to 100,000.")
        assert [await one.page.input_value(field) for field in ("#rate", "#first")] == ["fast", "0"]
        await one.page.fill("#rate", "")
        await hand.goes(one.page.locator("#do-requeue"))
        await expect(one.page.locator("#live .badge").first).to_have_text("done", timeout=PATIENCE_MS)
        await waiting(stays, 2)
        # One that is in another topic by now.
        letters = Topic(http, "letters")
        await letters.put(max_deliveries=1, dead_letter="letters.dead")
        await kill(letters, [{"data": n} for n in range(2)], "boom")
        await one.open("/admin/topics/letters/dead/jobs")
        await hand.goes(one.page.locator("[data-row]").first)
        await hand.goes(one.page.get_by_role("link", name="Requeue this one…"))
        await one.wait_for("Requeue 1 job")
        await hand.goes(one.page.locator("#do-requeue"))
        await waiting(letters, 1)


async def test_a_list_is_filtered_and_paged_by_its_address(operator: BrowserContext, failing: Running) -> None:
    async with tab(operator, failing.url) as one:
        hand = Hand(one)
        await one.open("/admin/topics/orders/dead/jobs")
        assert await one.page.locator("[data-row]").count() == 8
        await one.page.fill("[name=key]", "k-1")
        await hand.goes(one.page.get_by_role("button", name="Filter"))
        assert "key=k-1" in one.page.url
        assert await one.page.locator("[data-row]").count() == 1
        await one.wait_for("KeyError: ")
        await hand.goes(one.page.get_by_role("link", name="Requeue all of these…"))
        await one.wait_for("Requeue 1 job")
        await one.open("/admin/topics/orders/dead/jobs?age=1h")
        assert await one.page.locator("[data-row]").count() == 5
        at = await one.page.locator("[data-row]").first.inner_text()
        await hand.goes(one.page.get_by_role("link", name=f"Page of job {at}", exact=True))
        assert one.page.url.endswith("/admin/topics/{}/jobs/{}".format(*at.split(":")))
        await one.page.locator(".steps").wait_for()
        await one.open("/admin/topics/orders.dead/dead/jobs")  # the topic that they are in
        assert await one.page.locator("[data-row]").count() == 8
        await one.open("/admin/topics/paged/dead/jobs")
        seen = await one.page.locator("[data-row]").all_inner_texts()
        for _ in range(2):
            await hand.goes(one.page.get_by_role("link", name="Next"))
            seen += await one.page.locator("[data-row]").all_inner_texts()
        assert len(set(seen)) == len(seen) == 120
        assert await one.page.get_by_role("link", name="Next").count() == 0
        await one.open("/admin/topics/orders/dead/jobs?error=nothing+has+this")
        await one.wait_for("Nothing is out that fits.")


async def test_a_kind_is_deleted_once_the_topics_name_is_typed(
    operator: BrowserContext, failing: Running, http: httpx.AsyncClient
) -> None:
    doomed = Topic(http, "doomed")
    await doomed.put(max_deliveries=1, dead_letter="doomed.dead")
    await kill(doomed, [{"data": n} for n in range(3)], "ValueError: {}")
    await kill(doomed, [{"data": n} for n in range(2)], "KeyError: {}")
    dead = Topic(http, "doomed.dead")
    async with tab(operator, failing.url) as one:
        hand = Hand(one)
        await one.open("/admin/topics/doomed/dead")
        await hand.goes(one.page.get_by_role("link", name="ValueError"))
        await hand.goes(one.page.get_by_role("link", name="Delete this kind…"))
        await one.page.fill("#typed", "Doomed")
        await hand.goes(one.page.get_by_role("button", name="Delete"))
        await one.wait_for("This is not the topic's name.")
        assert await one.page.input_value("#typed") == "Doomed"
        assert (await dead.counts())[0] == 5
        await one.page.fill("#typed", "doomed")
        await hand.goes(one.page.get_by_role("button", name="Delete"))
        await one.wait_for("3 jobs were deleted.")
        assert (await dead.counts())[0] == 2
        # The rest, where they are; in the topic itself no dead letter waits.
        await one.open("/admin/topics/doomed/dead/purge")
        assert await one.page.get_by_role("checkbox").count() == 1
        await hand.goes(one.page.get_by_role("link", name="doomed.dead"))
        await one.page.fill("#typed", "doomed.dead")
        await hand.goes(one.page.get_by_role("button", name="Delete"))
        await one.wait_for("2 jobs were deleted.")
        assert (await dead.counts())[0] == 0
    entries = (await http.get("/v0/admin/audit?subject=doomed&page_size=5")).json()["entries"]
    assert ("cluster.purged", BOSS) in [(entry["action"], entry["actor_name"]) for entry in entries]
    entries = (await http.get("/v0/admin/audit?subject=doomed.dead&page_size=5")).json()["entries"]
    assert ("topic.purged", BOSS) in [(entry["action"], entry["actor_name"]) for entry in entries]


async def test_requeues_and_purges_are_asked_for_again_once_there_are_twice_as_many(
    operator: BrowserContext, failing: Running, http: httpx.AsyncClient
) -> None:
    grows = Topic(http, "grows")
    await grows.put(max_deliveries=1, on_exhausted="fail")
    await kill(grows, [{"data": n} for n in range(3)], "boom")
    async with tab(operator, failing.url) as one:
        hand = Hand(one)
        await Topic(http, "none").put()
        await one.open("/admin/topics/none/dead/purge")
        await Topic(http, "none").put(max_deliveries=1, on_exhausted="fail")
        await kill(Topic(http, "none"), [{"data": 1}], "boom")
        await one.page.fill("#typed", "none")
        await hand.goes(one.page.get_by_role("button", name="Delete"))
        assert "from 0 to 1." in await one.page.get_by_role("alert").inner_text()
        await one.open("/admin/topics/grows/dead/requeue")
        await kill(grows, [{"data": n} for n in range(3)], "boom")
        await hand.goes(one.page.locator("#do-requeue"))
        assert "doubled while you were asked: from 3 to 6." in await one.page.get_by_role("alert").inner_text()
        await one.open("/admin/topics/grows/dead/purge")
        await kill(grows, [{"data": n} for n in range(7)], "boom")
        await one.page.fill("#typed", "grows")
        await hand.goes(one.page.get_by_role("button", name="Delete"))
        assert "doubled while you were asked: from 6 to 13." in await one.page.get_by_role("alert").inner_text()
        assert await one.page.input_value("#typed") == "", "it is typed once more"
        await kill(grows, [{"data": n} for n in range(2)], "boom")
        await one.page.fill("#typed", "grows")
        await hand.goes(one.page.get_by_role("button", name="Delete"))
        await one.wait_for("15 jobs were deleted.")


async def test_who_may_see_less_sees_less_and_changes_nothing(
    guest: BrowserContext, failing: Running, http: httpx.AsyncClient
) -> None:
    async with tab(guest, failing.url) as one:
        await one.open("/admin/topics/orders/dead")
        await sign_in(one, READER)
        await one.wait_for("What failed can't be shown.")
        assert await one.page.locator("#requeue-all, #purge-all").count() == 0
        proof = await one.page.input_value("[name=proof] >> nth=0")
        for path, fields in (("requeue", {}), ("purge", {"typed": "orders", "status-failed": "on"})):
            answer = await one.page.request.post(
                f"{failing.url}/admin/topics/orders/dead/{path}",
                form={"proof": proof, **fields},
                headers={"origin": failing.url},
            )
            assert answer.status == 403
        for path in ("jobs", "requeue", "purge"):
            assert (await one.page.request.get(f"{failing.url}/admin/topics/orders/dead/{path}")).status == 403
    # A page does no more than its route: deleting a kind takes the scope that it takes there.
    key = await make(http, "no-delete", ["read", "write", "admin"])
    found = (await http.get("/v0/topics/stays/failures")).json()["failures"][0]
    async with client(failing) as plain:
        form = {"cluster": found["cluster"], "typed": "stays"}
        headers = {**bearer(key["secret"]), "origin": failing.url}
        refused = await plain.post("/admin/topics/stays/dead/purge", data=form, headers=headers)
    assert refused.status_code == 403
    assert "delete" in refused.text


async def test_what_makes_no_sense_is_a_page_that_says_so(failing: Running, http: httpx.AsyncClient) -> None:
    base = "/admin/topics/orders/dead"
    for path in (
        "jobs?cluster=x",
        "jobs?age=2h",
        "jobs?error=%00",
        "jobs?after=x",
        "jobs?after=0.99999999999999999.1&at=stays:1",
        "jobs?at=orders",
        f"jobs?tag={'x' * 1_025}",
        "requeue?seqs=one",
        f"requeue?seqs={','.join(['1'] * 1_001)}",
    ):
        assert (await http.get(f"{base}/{path}")).status_code == 400, path
    for path in ("operations/x", f"operations/{'0' * 8}-0000-0000-0000-{'0' * 12}"):
        assert (await http.get(f"{base}/{path}")).status_code == 404
    assert (await http.get("/admin/topics/nowhere/dead")).status_code == 404
    assert (await http.get(f"{base}/jobs?after=9.99999999999999999.9999999999999999999")).status_code == 200
