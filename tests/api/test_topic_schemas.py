"""Schemas of topics in both dialects: given and taken back, and what they keep out."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from tests.api.dialect import Body, Topic, accepted, every_page, refused
from tests.api.keyring import bearer, client, make
from tests.api.messages.client import Messages, done
from tests.topics.test_bus import Redis, redis, until

if TYPE_CHECKING:
    from app.base.db.pool import Pools
    from tests.api.conftest import Serve
    from tests.conftest import Running

__all__ = ["redis"]

SCHEMA: Body = {
    "type": "object",
    "properties": {"n": {"type": "integer"}, "items": {"type": "array", "items": {"type": "string"}}},
    "required": ["n"],
}
AVRO: Body = {"type": "record", "name": "N", "fields": [{"name": "n", "type": "long"}]}
GOOD = '{"n":1}'
BAD = '{"n":2,"items":["a",5]}'


class Schemas:
    """A topic's schema as a client of the messages dialect sees it."""

    def __init__(self, http: httpx.AsyncClient, topic: str) -> None:
        self.http = http
        self.path = f"/api/topic-schemas/{topic}"

    async def put(self, schema: Any, **fields: object) -> Body:
        return done(await self.http.put(self.path, json={"schema_json": schema, **fields}))

    async def get(self) -> Body:
        return done(await self.http.get(self.path))

    async def drop(self) -> None:
        done(await self.http.delete(self.path), 204)


@pytest.fixture
def schemas(http: httpx.AsyncClient, topic: str) -> Schemas:
    return Schemas(http, topic)


@pytest.fixture
def messages(http: httpx.AsyncClient, topic: str) -> Messages:
    return Messages(http, topic)


async def misfit(messages: Messages, *payloads: str, **fields: object) -> str:
    """The words with which payloads are refused; one by itself, several as a batch."""
    body: Body = {"topic": messages.topic, **fields}
    if len(payloads) == 1:
        answer = await messages.http.post("/api/messages", json=body | {"payload": payloads[0]})
    else:
        several = [{"payload": payload} for payload in payloads]
        answer = await messages.http.post("/api/messages/batch", json=body | {"messages": several})
    message: str = refused(answer, 422, "schema_violation")["message"]
    return message


async def test_a_schema_is_given_shown_changed_and_taken_back(schemas: Schemas, topic: str) -> None:
    refused(await schemas.http.get(schemas.path), 404, "not_found")
    await schemas.drop()
    text = json.dumps(SCHEMA, indent=1)
    first = await schemas.put(text)
    assert set(first) == {"topic", "schema_json", "format", "version", "updated_at"}
    assert (first["topic"], first["schema_json"], first["format"], first["version"]) == (topic, text, "json_schema", 1)
    assert await schemas.get() == first
    assert await schemas.put(text) == first  # which changes nothing
    second = await schemas.put(AVRO)
    assert (json.loads(second["schema_json"]), second["format"], second["version"]) == (AVRO, "avro", 2)
    assert second["updated_at"] > first["updated_at"]
    await schemas.drop()
    await schemas.drop()
    refused(await schemas.http.get(schemas.path), 404, "not_found")
    assert (await schemas.put(text))["version"] == 4  # never one that there was


async def test_a_schema_makes_its_topic_as_a_message_would(schemas: Schemas, messages: Messages) -> None:
    await schemas.put(SCHEMA)
    assert (await Topic(schemas.http, messages.topic).state())["config"]["type"] == "queue"
    refused(await schemas.http.get(f"/api/topic-configs/{messages.topic}"), 404, "not_found")  # nobody chose anything
    await messages.put(GOOD)


@pytest.mark.parametrize("schema", [SCHEMA, AVRO], ids=["json", "avro"])
async def test_what_does_not_fit_is_not_enqueued(schemas: Schemas, messages: Messages, schema: Body) -> None:
    await schemas.put(schema)
    await messages.put(GOOD)
    said = await misfit(messages, '{"n":"x"}')
    assert said.startswith(f"The payload does not match the schema of topic '{messages.topic}', at /n: ")
    assert await messages.counts() == {"pending": 1}
    for kind in ("text/plain", "application/octet-stream"):
        assert kind in await misfit(messages, GOOD, content_type=kind)
    assert "text/plain" in await misfit(messages, "hello")
    assert await messages.counts() == {"pending": 1}


async def test_one_that_does_not_fit_keeps_its_whole_batch_out(schemas: Schemas, messages: Messages) -> None:
    await schemas.put(SCHEMA)
    assert "Payload 2 does not match" in (said := await misfit(messages, GOOD, GOOD, BAD, '{"n":"x"}'))
    assert ", at /items/1: " in said
    assert await messages.counts() == {}
    assert len(await messages.batch({"payload": GOOD}, {"payload": GOOD})) == 2
    assert await messages.counts() == {"pending": 2}


async def test_avro_may_come_in_binary(schemas: Schemas, messages: Messages) -> None:
    await schemas.put(AVRO)
    fields: Body = {"encoding": "base64", "content_type": "avro/binary"}
    await messages.put(base64.b64encode(b"\x54").decode(), **fields)
    (message,) = await messages.dequeue(encoding="base64")
    assert base64.b64decode(message["payload"]) == b"\x54"
    assert "at /n" in await misfit(messages, base64.b64encode(b"\xff").decode(), **fields)
    await misfit(messages, base64.b64encode(b"\x54\x00").decode(), **fields)


@pytest.mark.parametrize("kind", ["queue", "log"])
@pytest.mark.parametrize("key", [None, "k"])
async def test_v0_has_it_among_its_settings(http: httpx.AsyncClient, topic: str, kind: str, key: str | None) -> None:
    v0 = Topic(http, topic)
    config = (await v0.put(type=kind, schema=SCHEMA))["config"]
    assert (config["schema"], config["schema_format"]) == (SCHEMA, "json_schema")
    assert (await v0.state())["config"] == config
    assert done(await http.get(f"/api/topic-schemas/{topic}"))["version"] == 1
    fields = {} if key is None else {"idempotency_key": key}
    records = [{"data": json.loads(GOOD)}] * 2 + [{"data": json.loads(BAD)}]
    error = refused(await http.post(v0.path, json={"records": records, **fields}), 422, "schema_violation")
    assert error["detail"].pop("fault") in error["message"]
    assert error["detail"] == {"topic": topic, "record": 2, "path": "/items/1"}
    assert (await v0.state())["count"] == 0
    assert (await v0.append(*records[:2], **fields))["count"] == 2
    assert (await v0.state())["count"] == 2
    assert "schema" not in (await v0.put(type=kind))["config"]  # what is left out is its default: none
    assert "schema" not in (await v0.state())["config"]
    assert (await v0.append(*records))["count"] == 3


async def test_keyed_jobs_are_looked_at_too(http: httpx.AsyncClient, topic: str) -> None:
    """And those of the append that makes the topic."""
    v0 = Topic(http, topic)
    body = {"records": [{"data": {"n": 1}, "key": "a"}, {"data": {}, "key": "b"}]}
    for fields in ({"config": {"type": "queue", "schema": SCHEMA}}, {"idempotency_key": "k"}):
        error = refused(await http.post(v0.path, json={**body, **fields}), 422, "schema_violation")
        assert error["detail"]["record"] == 1
    assert (await v0.state())["count"] == 0
    await v0.append(body["records"][0])


async def test_the_other_dialects_settings_leave_a_schema_alone(schemas: Schemas, messages: Messages) -> None:
    given = await schemas.put(SCHEMA)
    path = f"/api/topic-configs/{messages.topic}"
    done(await schemas.http.put(path, json={"max_depth": 5}))
    done(await schemas.http.delete(path), 204)
    assert await schemas.get() == given
    await misfit(messages, "{}")


async def test_what_is_there_stays_and_comes_back_as_it_is(schemas: Schemas, messages: Messages) -> None:
    """Nothing is looked at twice: not a job that waits, not one that is returned, not one that is replayed."""
    config = {"replayable": True, "max_retries": 1, "dlq_threshold": 1}
    done(await schemas.http.put(f"/api/topic-configs/{messages.topic}", json=config))
    ids = [await messages.put("not json"), await messages.put("nor this")]
    await schemas.put(SCHEMA)
    first, second = await messages.dequeue(2)
    assert [first["id"], second["id"]] == ids
    await messages.ack(first["id"])
    await messages.nack(second["id"])  # its last delivery: it is a dead letter
    assert [one["payload"] for one in await messages.of(f"{messages.topic}.dlq").dequeue()] == ["nor this"]
    done(await schemas.http.post(f"/api/topics/{messages.topic}/replay", json={}))
    assert [one["payload"] for one in await messages.dequeue()] == ["not json"]


async def test_others_of_the_same_moment_are_none_the_worse(schemas: Schemas, messages: Messages) -> None:
    """And a large batch is looked at beside them."""
    await schemas.put({"type": "array", "items": {"type": "string"}})
    large = json.dumps(["x" * 10] * 5_000)
    bodies = [{"topic": messages.topic, "payload": "[]" if i % 2 else "{}"} for i in range(60)]
    heavy = asyncio.create_task(misfit(messages, large, large, large[:-1] + ",5]"))
    answers = await asyncio.gather(*(messages.http.post("/api/messages", json=body) for body in bodies))
    assert "Payload 2 does not match" in await heavy
    assert [answer.status_code for answer in answers] == [201 if i % 2 else 422 for i in range(60)]
    assert await messages.counts() == {"pending": 30}


@pytest.mark.parametrize(
    ("schema", "word"),
    [
        ('{"type":"nope"}', "/type"),
        ('{"properties":{"a":{"$ref":"http://127.0.0.1:1/x"}}}', "127.0.0.1"),
        ("not json", "JSON"),
        ('{"description":"' + "x" * (256 * 1024) + '"}', "262144"),
        ('"' + "\\u0061" * 3 + '"', "aaa"),
    ],
)
async def test_what_is_no_schema_is_refused(schemas: Schemas, topic: str, schema: str, word: str) -> None:
    body = {"schema_json": schema}
    assert word in refused(await schemas.http.put(schemas.path, json=body), 400, "invalid_schema")["message"]
    if schema.startswith("{"):
        v0 = {"type": "queue", "schema": json.loads(schema)}
        refused(await schemas.http.put(f"/v0/topics/{topic}", json=v0), 400, "invalid_schema")
    for name in (f"{topic}.dlq", "a b", ""):
        answer = await schemas.http.put(f"/api/topic-schemas/{name}", json={"schema_json": "{}"})
        refused(answer, 400, "invalid_request")
    refused(await schemas.http.put(schemas.path, json={"schema_json": "{}", "format": "xml"}), 400, "invalid_request")
    refused(await schemas.http.get(f"/v0/topics/{topic}"), 404, "topic_not_found")


async def test_a_schema_goes_with_its_topic(schemas: Schemas, messages: Messages, pools: Pools) -> None:
    kept = "SELECT count(*) FROM holdfast.topic_schemas"
    before = await pools.rest.fetchval(kept)
    await schemas.put(SCHEMA)
    assert await pools.rest.fetchval(kept) == before + 1
    await Topic(schemas.http, messages.topic).drop()
    assert await pools.rest.fetchval(kept) == before
    refused(await schemas.http.get(schemas.path), 404, "not_found")
    await messages.put("anything")


async def test_the_trail_tells_of_each_change(schemas: Schemas, topic: str) -> None:
    await schemas.put(SCHEMA)
    await schemas.put(SCHEMA)
    await schemas.put(AVRO)
    await schemas.drop()
    await schemas.drop()
    entries = accepted(await schemas.http.get(f"/v0/admin/audit?subject={topic}"))["entries"]
    told = [entry["detail"]["schema"] for entry in entries if entry["action"] == "topic.changed"]
    one, two = {"version": 1, "format": "json_schema"}, {"version": 2, "format": "avro"}
    assert told == [
        {"from": {"version": 2}, "to": None},
        {"from": {"version": 1}, "to": two},
        {"from": None, "to": one},
    ]


async def test_a_list_has_a_page_at_a_time(http: httpx.AsyncClient, topic: str) -> None:
    given = [await Schemas(http, f"zz.{topic}{end}").put(SCHEMA) for end in (".a", ".b", ".c")]
    found = await every_page(http, "/api/topic-schemas", "items")
    assert [one for one in found if one in given] == given
    assert [one["topic"] for one in found] == sorted(one["topic"] for one in found)


async def test_a_change_counts_at_once_in_its_process_and_soon_in_another(
    serve: Callable[..., Awaitable[Running]], topic: str, redis: Redis
) -> None:
    one, two = await serve(redis_url=redis.url), await serve(redis_url=redis.url)
    async with client(one) as here, client(two) as there:
        schema, elsewhere = Schemas(here, topic), Messages(there, topic)
        await elsewhere.put("anything")  # so that it knows the topic

        async def status(payload: str, wanted: int) -> None:
            async def fact() -> bool:
                body = {"topic": topic, "payload": payload}
                return (await there.post("/api/messages", json=body)).status_code == wanted

            await until(fact, 3)

        await schema.put(SCHEMA)
        await misfit(Messages(here, topic), "{}")
        await status("{}", 422)
        await schema.put({"required": ["m"]})
        await misfit(Messages(here, topic), GOOD)
        await status('{"m":1}', 201)
        await status(GOOD, 422)
        await schema.drop()
        await Messages(here, topic).put("anything")
        await status("anything", 201)


async def test_a_process_that_was_not_told_reads_the_schema_that_there_is(serve: Serve, topic: str) -> None:
    """It knows a version that it has never read, and that is gone."""
    one, two = await serve(), await serve()
    async with client(one) as here, client(two) as there:
        schema = Schemas(here, topic)
        await schema.put(SCHEMA)
        await Topic(there, topic).claim()  # it knows the topic, not yet its schema
        await schema.put({"required": ["m"]})
        await misfit(Messages(there, topic), GOOD)
        await Messages(there, topic).put('{"m":1}')


async def test_a_key_sees_and_changes_its_own_topics(root: httpx.AsyncClient, topic: str) -> None:
    for name in (f"mail.{topic}", f"email.{topic}"):
        await Schemas(root, name).put(SCHEMA)
    key = bearer((await make(root, "admin of mail", ["admin"], prefixes=["mail."]))["secret"])
    listed = done(await root.get("/api/topic-schemas", headers=key))["items"]
    assert [item["topic"] for item in listed] == [f"mail.{topic}"]
    path = f"/api/topic-schemas/mail.{topic}"
    assert (await root.put(path, headers=key, json={"schema_json": {}})).is_success
