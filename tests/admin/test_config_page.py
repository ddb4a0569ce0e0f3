"""The Config tab: what is set and where it comes from, and changes that are seen first, and undone."""

from __future__ import annotations

import asyncio
import html
import re

import httpx

from tests.admin.conftest import BOSS, HOSTILE
from tests.admin.operator import Operator
from tests.api.dialect import Body, Topic, accepted
from tests.api.keyring import bearer, make
from tests.api.messages.client import done

WAS = re.compile(r'name="was" value="([^"]*)"')


async def config(topic: Topic) -> Body:
    found: Body = (await topic.state())["config"]
    return found


async def changes(topic: Topic) -> list[tuple[str, Body]]:
    """Who changed what, the newest first."""
    found = accepted(await topic.http.get(f"/v0/admin/audit?subject={topic.name}&action=topic.changed"))
    return [(entry["actor_name"], entry["detail"]) for entry in found["entries"]]


async def test_a_wrong_value_is_said_beside_its_field_and_kept(boss: Operator, queue: Topic) -> None:
    typed = {
        "tenant_limits": '{"ada": 0}',
        "dead_letter": HOSTILE,
        "webhook": '{"url": "ftp://example.com"}',
        "throughput_limit": "12",
    }
    page = await boss.press(await boss.open(f"topics/{queue.name}/config"), "Review", status=422, **typed)
    assert "Expected `int` >= 1" in page.fault("tenant_limits")
    assert {name: page.value(name) for name in typed} == typed
    page = await boss.press(page, "Review", status=422, tenant_limits='{"<i>ada</i>": 3}', dead_letter="")
    assert "http://" in page.fault("webhook")
    page = await boss.press(page, "Review", webhook="")
    assert sorted(page.table) == [["tenant_limits", "{}", '{ "<i>ada</i>": 3 }'], ["throughput_limit", "0", "12"]]
    page = await boss.press(page, "Back to the form")
    assert page.value("throughput_limit") == "12"
    await boss.press(await boss.press(page, "Review"), "Save")
    kept = await config(queue)
    assert (kept["tenant_limits"], kept["throughput_limit"], kept["dead_letter"]) == ({"<i>ada</i>": 3}, 12, None)
    assert [actor for actor, _ in await changes(queue)] == [BOSS]


async def test_of_two_who_change_it_at_once_the_second_is_asked_again(boss: Operator, queue: Topic) -> None:
    address = f"topics/{queue.name}/config"
    mine = await boss.open(address)
    await boss.press(await boss.press(await boss.open(address), "Review", max_depth="7"), "Save")
    mine = await boss.press(mine, "Review", throughput_limit="9", status=409)
    assert "This topic has changed since you opened the form." in mine.text
    assert (mine.value("throughput_limit"), mine.value("max_depth")) == ("9", "7")
    mine = await boss.press(mine, "Review")
    # It is confirmed when somebody has changed it once more.
    await boss.press(await boss.press(await boss.open(address), "Review", max_depth="8"), "Save")
    mine = await boss.press(mine, "Save", status=409)
    assert mine.value("throughput_limit") == "9"
    kept = await config(queue)
    assert (kept["max_depth"], kept["throughput_limit"]) == (8, 0)
    await boss.press(await boss.press(mine, "Review"), "Save")
    kept = await config(queue)
    assert (kept["max_depth"], kept["throughput_limit"]) == (8, 9)


async def test_of_many_that_are_sent_together_one_is_saved(http: httpx.AsyncClient, queue: Topic) -> None:
    address = f"/admin/topics/{queue.name}/config"
    form = {"was": html.unescape(WAS.findall((await http.get(address)).text)[0])}
    saves = (http.post(f"{address}/save", data={**form, "max_depth": str(n)}) for n in range(1, 9))
    answers = [answer.status_code for answer in await asyncio.gather(*saves)]
    assert sorted(answers) == [303] + [409] * 7
    assert (await config(queue))["max_depth"] == 1 + answers.index(303)
    assert len(await changes(queue)) == 1


async def test_what_is_left_to_the_service_stays_left(boss: Operator, http: httpx.AsyncClient, topic: str) -> None:
    done(await http.post("/api/messages", json={"topic": topic, "payload": "1"}), 201)
    page = await boss.open(f"topics/{topic}/config")
    assert page.text.count("default of the service") == 4
    await boss.press(await boss.press(page, "Review", max_retries="9"), "Save")
    kept = done(await http.get(f"/api/topic-configs/{topic}"))
    assert kept["max_retries"] == 9
    assert not {"dlq_threshold", "message_ttl_seconds", "visibility_timeout_seconds"} & set(kept)


async def test_an_older_change_is_undone_by_a_page_that_shows_it_first(boss: Operator, queue: Topic) -> None:
    named = await make(queue.http, name=HOSTILE)
    for depth in (3, 4):
        body = {"type": "queue", "max_depth": depth, "lease_ms": depth * 1000}
        accepted(await queue.http.put(queue.path, json=body, headers=bearer(named["secret"])))
    page = await boss.open(f"topics/{queue.name}/config")
    assert page.text.count(HOSTILE) == 2, "who it was, as text"
    _, older = [one.get("href", "") for one in page.main.iter("a") if "undo" in one.get("href", "")]
    page = await boss.open(older)
    assert page.table == [["max_depth", "4", "0"], ["lease_ms", "4 s", "30 s"]]
    # Meanwhile it becomes another once more: what undoing does is another, too.
    await queue.put(max_depth=5)
    page = await boss.press(page, "Save", status=409)
    assert "This topic has changed since you opened the form." in page.text
    assert page.table == [["max_depth", "5", "0"]]
    await boss.press(page, "Save")
    assert (await config(queue))["max_depth"] == 0


async def test_a_secret_is_not_shown_and_stays(boss: Operator, queue: Topic) -> None:
    page = await boss.open(f"topics/{queue.name}/config")
    hook = '{"url": "https://example.com/a", "secret": "not for anybody"}'
    review = await boss.press(page, "Review", webhook=hook)
    assert "not for anybody" not in review.text
    page = await boss.press(review, "Save")
    assert "not for anybody" not in page.html
    assert (await config(queue))["webhook"]["secret"].startswith("********")
    moved = page.value("webhook").replace("/a", "/b")
    page = await boss.press(await boss.press(page, "Review", webhook=moved), "Save")
    assert page.value("webhook") == moved
    unknown = '{"url": "https://example.com/a", "secret": "********unknown"}'
    assert "not stored here" in (await boss.press(page, "Review", webhook=unknown, status=422)).fault("webhook")


async def test_who_may_only_read_sees_values_and_no_fields(reader: Operator) -> None:
    page = await reader.open("topics/mail.outbound/config")
    assert "fixed by its type" in page.text
    assert [one for tag in ("input", "textarea", "select", "button") for one in page.main.iter(tag)] == []
    assert "Changes" not in page.text
