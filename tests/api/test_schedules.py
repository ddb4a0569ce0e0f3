"""/v0/schedules: what a schedule is, what it makes, and who may see and change it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import httpx
import pytest

from tests.api.dialect import Body, Topic, accepted, eventually, every_page, refused
from tests.api.keyring import bearer, make

if TYPE_CHECKING:
    from tests.conftest import Running

RECORD = {
    "data": {"a": 1.0},
    "tag": "t",
    "node": "p",
    "meta": {"n": [1]},
    "priority": 3,
    "delay_ms": 0,
    "ttl_ms": 60_000,
    "max_deliveries": 2,
    "key": "k",
}


class Schedule:
    """One by its name, in v0's words."""

    def __init__(self, http: httpx.AsyncClient, topic: str) -> None:
        self.http = http
        self.topic = topic
        self.path = f"/v0/schedules/s-{topic}"

    def body(self, **fields: object) -> Body:
        return {"topic": self.topic, "cron": "0 0 1 1 *", "record": {"data": 1}, **fields}

    async def put(self, **fields: object) -> Body:
        return accepted(await self.http.put(self.path, json=self.body(**fields)))

    async def get(self) -> Body:
        return accepted(await self.http.get(self.path))

    async def post(self, verb: str) -> Body:
        return accepted(await self.http.post(f"{self.path}/{verb}"))


@pytest.fixture
async def schedule(http: httpx.AsyncClient, queue: Topic) -> AsyncIterator[Schedule]:
    made = Schedule(http, queue.name)
    yield made
    await http.delete(made.path)


def times(shown: Body) -> list[datetime]:
    return [datetime.fromtimestamp(at / 1000, UTC) for at in shown["next_fires"]]


async def test_it_is_shown_as_it_was_given(schedule: Schedule) -> None:
    first = await schedule.http.put(schedule.path, json=schedule.body(record=RECORD, time_zone="Europe/Berlin"))
    assert first.status_code == 201
    shown = accepted(first)
    assert shown["record"] == RECORD
    assert '"data":{"a":1.0}' in first.text.replace(" ", ""), "data is kept as it was written"
    assert (shown["missed"], shown["paused"], shown["fires"], shown["last_error"]) == ("once", False, 0, None)
    assert shown["next_fire"] == shown["next_fires"][0]
    assert [(at.month, at.day, at.hour) for at in times(shown)] == [(12, 31, 23)] * 5
    again = await schedule.http.put(schedule.path, json=schedule.body(record=RECORD, time_zone="Europe/Berlin"))
    assert again.status_code == 200
    assert (await schedule.get())["created_at"] == shown["created_at"]


async def test_any_payload_is_shown_as_it_was_given(schedule: Schedule) -> None:
    for record in (
        {"data": "text", "content_type": "text/plain"},
        {"data": {"$base64": "AP8="}, "content_type": "image/png"},
        {"data": None},
    ):
        assert (await schedule.put(record=record))["record"] == record
        assert (await schedule.get())["record"] == record


async def test_run_now_makes_its_job(schedule: Schedule, queue: Topic) -> None:
    await schedule.put(record=RECORD, paused=True)
    ran = await schedule.post("run")
    job = await queue.take()
    assert (job["$seq"], job["$tag"], job["key"], job["data"]) == (ran["seq"], "t", "k", {"a": 1.0})
    assert set(job["meta"]) == {"n", "$schedule", "$fire_at"}
    assert job["meta"]["$schedule"] == f"s-{queue.name}"
    at = datetime.fromisoformat(job["meta"]["$fire_at"])
    assert int(at.timestamp() * 1000) == ran["fire_at"]
    shown = await schedule.get()
    assert (shown["fires"], shown["last_seq"], shown["last_fire"]) == (1, ran["seq"], ran["fire_at"])


async def test_the_service_fires_it(service: Running, schedule: Schedule, queue: Topic) -> None:
    """The loop of a running service, which was asleep: its database's clock is what it goes by, so the schedule is made
    due by having been made two minutes ago. It may look on its own accord before it is woken."""
    await schedule.put(cron="* * * * *", record={"data": "made"})
    async with service.context.pools.rest.acquire() as db:
        back = "next_fire - interval '2 min'"
        query = f"UPDATE holdfast.schedules SET (next_fire, due_at) = ({back}, {back}) WHERE name = $1"
        await db.execute(query, f"s-{queue.name}")
    await schedule.put(cron="* * * * *", record={"data": "made"})  # which wakes it, and keeps what is due
    assert (await queue.take())["data"] == "made"

    async def fired() -> bool:
        return bool((await schedule.get())["fires"])

    await eventually(fired)


async def test_pause_and_resume(schedule: Schedule) -> None:
    made = await schedule.put()
    for _ in range(2):
        paused = await schedule.post("pause")
        assert (paused["paused"], paused["next_fire"], paused["next_fires"]) == (True, None, [])
    assert (await schedule.put())["paused"]
    for _ in range(2):
        assert (await schedule.post("resume"))["next_fire"] == made["next_fire"]
    assert not (await schedule.put())["paused"]


@pytest.mark.parametrize(
    ("fields", "status", "code"),
    [
        ({"cron": "61 * * * *"}, 422, "invalid_schedule"),
        ({"cron": ""}, 422, "invalid_schedule"),
        ({"cron": "* " * 200}, 422, "invalid_schedule"),
        ({"cron": "0 0 30 2 *"}, 422, "invalid_schedule"),
        ({"time_zone": ""}, 422, "invalid_schedule"),
        ({"time_zone": "../../etc/passwd"}, 422, "invalid_schedule"),
        ({"record": {"data": 1, "run_at": "2030-01-01T00:00:00Z"}}, 400, "invalid_request"),
        ({"record": {"data": "x" * 1_048_577}}, 400, "record_too_large"),
        ({"topic": "of.nobody"}, 404, "topic_not_found"),
    ],
)
async def test_nonsense_is_refused(schedule: Schedule, fields: Body, status: int, code: str) -> None:
    refused(await schedule.http.put(schedule.path, json=schedule.body(**fields)), status, code)
    refused(await schedule.http.get(schedule.path), 404, "not_found")
    refused(await schedule.http.get("/v0/topics/of.nobody"), 404, "topic_not_found")


async def test_a_list_is_in_pages(schedule: Schedule, queue: Topic) -> None:
    names = [f"s-{queue.name}-{n}" for n in range(3)]
    for name in names:
        accepted(await schedule.http.put(f"/v0/schedules/{name}", json=schedule.body()))
    found = await every_page(schedule.http, "/v0/schedules", "schedules", prefix=f"s-{queue.name}")
    assert [one["name"] for one in found] == names
    assert all("record" not in one for one in found)
    for name in names:
        accepted(await schedule.http.delete(f"/v0/schedules/{name}"))
        refused(await schedule.http.delete(f"/v0/schedules/{name}"), 404, "not_found")


async def test_their_number_is_bounded(schedule: Schedule, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = await schedule.put()
    monkeypatch.setattr("app.features.schedules.changes.MOST", 1)
    answer = await schedule.http.put(f"{schedule.path}-more", json=schedule.body())
    assert refused(answer, 429, "throttled")["detail"] == {"limit": "schedules", "max": 1}
    assert (await schedule.put())["created_at"] == shown["created_at"], "a change is none more"


async def test_changes_are_in_the_audit_trail(schedule: Schedule) -> None:
    await schedule.put(record=RECORD)
    await schedule.put(record=RECORD)
    await schedule.put(cron="0 0 2 1 *")
    await schedule.post("pause")
    await schedule.post("run")
    accepted(await schedule.http.delete(schedule.path))
    name = schedule.path.rpartition("/")[2]
    entries = accepted(await schedule.http.get("/v0/admin/audit", params={"subject": name}))["entries"]
    assert [(one["action"], one["detail"]) for one in reversed(entries)] == [
        (
            "cron.created",
            about := {
                "topic": schedule.topic,
                "cron": "0 0 1 1 *",
                "time_zone": "UTC",
                "missed": "once",
                "paused": False,
            },
        ),
        ("cron.changed", {"cron": {"from": "0 0 1 1 *", "to": "0 0 2 1 *"}, "record": "changed"}),
        ("cron.changed", {"paused": {"from": False, "to": True}}),
        ("cron.run", {"topic": schedule.topic, "seq": 1}),
        ("cron.deleted", about | {"cron": "0 0 2 1 *", "paused": True}),
    ]


async def test_a_key_sees_and_changes_schedules_of_its_own_topics(root: httpx.AsyncClient) -> None:
    mine = bearer((await make(root, "mine", prefixes=["mine."]))["secret"])
    for topic, name in (("mine.a", "own"), ("other.a", "foreign")):
        await Topic(root, topic).put()
        body = {"topic": topic, "cron": "0 0 1 1 *", "record": {"data": 1}}
        accepted(await root.put(f"/v0/schedules/{name}", json=body))
    assert [one["name"] for one in await every_page(root, "/v0/schedules", "schedules")] == ["foreign", "own"]
    shown = accepted(await root.get("/v0/schedules", headers=mine))["schedules"]
    assert [one["name"] for one in shown] == ["own"]
    accepted(await root.get("/v0/schedules/own", headers=mine))
    refused(await root.get("/v0/schedules/foreign", headers=mine), 404, "not_found")
    body = {"topic": "mine.a", "cron": "0 0 1 1 *", "record": {"data": 1}}
    accepted(await root.put("/v0/schedules/own", json=body, headers=mine))
    refused(await root.put("/v0/schedules/foreign", json=body, headers=mine), 409, "already_exists")
