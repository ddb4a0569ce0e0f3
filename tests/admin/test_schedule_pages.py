"""The pages of schedules: a list, and a form with what is wrong beside its fields."""

from __future__ import annotations

import httpx

from tests.admin.conftest import HOSTILE
from tests.admin.operator import Operator
from tests.api.dialect import Body, Topic, accepted
from tests.conftest import Running

YEARLY = "0 0 1 1 *"


async def put(http: httpx.AsyncClient, name: str, topic: str, **fields: object) -> None:
    body = {"topic": topic, "cron": YEARLY, "record": {"data": {"n": 1}}, **fields}
    accepted(await http.put(f"/v0/schedules/{name}", json=body))


async def stored(http: httpx.AsyncClient, name: str) -> Body:
    return accepted(await http.get(f"/v0/schedules/{name}"))


async def test_an_empty_service_has_none_and_makes_none(empty: Running) -> None:
    async with httpx.AsyncClient(base_url=empty.url) as http:
        page = await Operator(http).open("schedules")
        assert "No schedules yet." in page.text
        assert page.link("New schedule") is None


async def test_a_list_has_pages_and_a_filter_by_its_address(boss: Operator, queue: Topic) -> None:
    for n in range(51):
        await put(queue.http, f"list.{n:02}", queue.name, paused=n == 0)
    page = await boss.open("schedules?q=list.")
    assert len(page.rows) == 50
    assert "paused" in page.row("list.00")
    page = await boss.follow(page, "Next")
    assert page.rows == ["list.50"]
    assert "No schedule name starts with <script>." in (await boss.press(page, "Filter", q="<script>")).text


async def test_one_is_made_and_changed_with_errors_beside_the_fields(boss: Operator, queue: Topic) -> None:
    page = await boss.follow(await boss.open("schedules"), "New schedule")
    typed = {"name": "-", "topic": "nowhere", "cron": "61 * * * *", "time_zone": "Mars/Olympus", "record": HOSTILE}
    page = await boss.press(page, "Save", status=422, **typed)
    assert [name for name in typed if not page.fault(name)] == ["topic"], "is looked for once the rest makes sense"
    assert {name: page.value(name) for name in typed} == typed
    right = {"name": f"made.{queue.name}", "cron": YEARLY, "time_zone": "Europe/Berlin", "record": '{"data": 1}'}
    page = await boss.press(page, "Save", status=422, **right)
    assert "There is no topic 'nowhere'." in page.fault("topic")
    page = await boss.press(page, "Save", status=422, topic="events")
    assert "is a log" in page.fault("topic")
    at = '{"data": 1, "run_at": "2030-01-01T00:00:00Z"}'
    page = await boss.press(page, "Save", status=422, topic=queue.name, record=at)
    assert "run_at" in page.fault("record")
    record = '{"data": {"a": 1.00, "b": "' + HOSTILE.replace('"', '\\"') + '"}, "tag": "<b>t</b>", "priority": 7}'
    page = await boss.press(page, "Save", record=record)
    assert page.path == f"/admin/schedules/{right['name']}"
    assert len(page.all(".//ol/li")) == 5, "when it is due"
    assert '{"a": 1.00, "b": "<script>' in page.text
    again = await boss.press(await boss.open("schedules-new"), "Save", status=422, **right, topic=queue.name)
    assert again.fault("name") == "A schedule with this name exists."
    # What is left alone stays as it is, to the byte.
    page = await boss.open(f"schedules/{right['name']}/edit")
    await boss.press(page, "Save", cron="0 12 1 1 *", missed="all")
    found = await stored(queue.http, right["name"])
    assert (found["cron"], found["missed"], found["time_zone"]) == ("0 12 1 1 *", "all", "Europe/Berlin")
    assert found["record"]["data"] == {"a": 1.0, "b": HOSTILE}
    assert (found["record"]["tag"], found["record"]["priority"]) == ("<b>t</b>", 7)
    last = accepted(await queue.http.get(f"/v0/admin/audit?subject={right['name']}&page_size=1"))["entries"][0]
    assert set(last["detail"]) == {"cron", "missed"}


async def test_of_two_who_change_one_at_once_the_second_is_asked_again(boss: Operator, queue: Topic) -> None:
    name = f"both.{queue.name}"
    await put(queue.http, name, queue.name)
    page = await boss.open(f"schedules/{name}/edit")
    await put(queue.http, name, queue.name, cron="30 1 1 1 *")
    page = await boss.press(page, "Save", status=409, time_zone="Asia/Tokyo")
    assert "This schedule has changed since you opened the form." in page.text
    assert "Current value: 30 1 1 1 *" in page.text
    assert page.value("time_zone") == "Asia/Tokyo"
    assert (await stored(queue.http, name))["time_zone"] == "UTC"
    await boss.press(page, "Save", cron="30 1 1 1 *")
    found = await stored(queue.http, name)
    assert (found["cron"], found["time_zone"]) == ("30 1 1 1 *", "Asia/Tokyo")
