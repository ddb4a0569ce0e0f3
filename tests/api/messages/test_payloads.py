"""What went in comes out, byte for byte, in either dialect. docs/semantics.md, section 18."""

from __future__ import annotations

import base64
import json

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some

from app.errors import InvalidRequest
from app.http.messages.message import _payload
from app.http.payloads import is_json, stored_type, type_of
from app.kernel.model import as_json
from tests.api.dialect import Body, Topic, refused
from tests.api.messages import client
from tests.api.messages.client import Messages

JSON_TEXTS = ['{"a": 1,  "b":[1.50, 1e3]}', "42", '"text"', "null", " [ ] ", '{"é":"\\u00e9\\ud83d\\ude00"}']
TEXTS = ["eyJhbW91bnQiOjk5fQ==", "{not json", "line\nline\ttab\\", "naïve – 日本 😀", "\x00\x1f", "NaN"]
BYTES = [b"\xff\xfe\x00", b"\x89PNG\r\n", b"plain", b'{"json":true}', bytes(range(256))]


def to_base64(payload: bytes) -> str:
    return base64.b64encode(payload).decode()


@pytest.mark.parametrize("text", JSON_TEXTS + TEXTS)
async def test_a_text_comes_out_as_it_went_in(http: httpx.AsyncClient, messages: Messages, text: str) -> None:
    one = await messages.put(text)
    assert (await messages.get(one))["payload"] == text
    as_bytes = await messages.get(one, encoding="base64")
    assert (as_bytes["payload"], as_bytes["encoding"]) == (to_base64(text.encode()), "base64")
    (taken,) = await messages.dequeue()
    assert taken["payload"] == text
    assert "encoding" not in taken
    await messages.nack(one)
    data = (await Topic(http, messages.topic).take())["data"]
    assert data == (json.loads(text) if text in JSON_TEXTS else text)


@pytest.mark.parametrize("payload", BYTES)
async def test_bytes_come_out_as_they_went_in(http: httpx.AsyncClient, messages: Messages, payload: bytes) -> None:
    one = await messages.put(to_base64(payload), encoding="base64")
    (taken,) = await messages.dequeue()
    for shown in (taken, await messages.get(one), (await messages.page())["items"][0]):
        assert (shown["payload"], shown["encoding"]) == (to_base64(payload), "base64")
        assert shown["content_type"] == "application/octet-stream"
    await messages.nack(one)
    assert (await Topic(http, messages.topic).take())["data"] == {"$base64": to_base64(payload)}


async def test_the_callers_type_decides_how_bytes_are_shown(http: httpx.AsyncClient, messages: Messages) -> None:
    text, doc, image = b"na\xc3\xafve", b'{"n": 1}', b"\x89PNG"
    await messages.batch(
        {"payload": to_base64(text), "encoding": "base64", "content_type": "text/plain; charset=utf-8"},
        {"payload": to_base64(doc), "encoding": "base64", "content_type": "application/json"},
        {"payload": to_base64(image), "encoding": "base64", "content_type": "image/png"},
        {"payload": "42", "content_type": "text/csv"},
        {"payload": '{"x":1}', "content_type": "application/cloudevents+json"},
        {"payload": "%PDF", "content_type": "application/pdf"},
    )
    shown = [(one["payload"], one.get("encoding"), one.get("content_type")) for one in await messages.dequeue(6)]
    assert shown == [
        ("naïve", None, "text/plain; charset=utf-8"),
        ('{"n": 1}', None, None),
        (to_base64(image), "base64", "image/png"),
        ("42", None, "text/csv"),
        ('{"x":1}', None, "application/cloudevents+json"),
        (to_base64(b"%PDF"), "base64", "application/pdf"),
    ]
    for one in (await messages.page())["items"]:
        await messages.nack(one["id"])
    claimed = (await Topic(http, messages.topic).claim(max=6))["claimed"]
    assert [job["data"] for job in claimed] == [
        "naïve",
        {"n": 1},
        {"$base64": to_base64(image)},
        "42",
        {"x": 1},
        {"$base64": to_base64(b"%PDF")},
    ]


async def test_what_could_not_be_shown_is_refused(messages: Messages) -> None:
    bad: list[Body] = [
        {"payload": "\x00", "metadata": {"k": "\x00"}},
        {"payload": "no", "content_type": "application/json"},
        {"payload": "no", "content_type": "application/x+json"},
        {"payload": to_base64(b"\xff"), "encoding": "base64", "content_type": "text/plain"},
        {"payload": to_base64(b'"\xff"'), "encoding": "base64", "content_type": "application/json"},
        *({"payload": text, "encoding": "base64"} for text in ("no base64", "Zg", "é")),
        {"payload": "x", "encoding": "hex"},
        *({"payload": "x", "content_type": kind} for kind in ("text", "text/plain\n", f"text/{'x' * 255}")),
    ]
    for fields in bad:
        answer = await messages.http.post("/api/messages", json={"topic": messages.topic, **fields})
        client.refused(answer, 400, "invalid_request")


async def test_v0_takes_text_and_bytes_too(http: httpx.AsyncClient, queue: Topic) -> None:
    await queue.append(
        {"data": {"$base64": to_base64(b"\xff\x00")}},
        {"data": {"$base64": to_base64(b"\x89PNG")}, "content_type": "image/png"},
        {"data": {"$base64": to_base64(b'{"a":  1}')}, "content_type": "application/json"},
        {"data": "line\non\u00e9", "content_type": "text/markdown"},
        {"data": "JSON", "content_type": "application/json"},
        {"data": {"$base64": "!", "more": 1}},
        {"data": {"$base64": 1}},
        {"data": {"x": {"$base64": "AA=="}}},
    )
    messages = Messages(http, queue.name)
    shown = [(m["payload"], m.get("encoding"), m.get("content_type")) for m in await messages.dequeue(8)]
    assert shown == [
        (to_base64(b"\xff\x00"), "base64", "application/octet-stream"),
        (to_base64(b"\x89PNG"), "base64", "image/png"),
        ('{"a":  1}', None, None),
        ("line\noné", None, "text/markdown"),
        ('"JSON"', None, None),
        ('{"$base64":"!","more":1}', None, None),
        ('{"$base64":1}', None, None),
        ('{"x":{"$base64":"AA=="}}', None, None),
    ]
    assert [record["data"] for record in (await queue.post("diff"))["records"]] == [
        *({"$base64": to_base64(b"\xff\x00")}, {"$base64": to_base64(b"\x89PNG")}, {"a": 1}, "line\noné"),
        *("JSON", {"$base64": "!", "more": 1}, {"$base64": 1}, {"x": {"$base64": "AA=="}}),
    ]


async def test_v0_refuses_what_is_not_what_it_says(queue: Topic) -> None:
    for record in (
        {"data": {"$base64": "!"}},
        {"data": "x", "content_type": "image/png"},
        {"data": 1, "content_type": "text/plain"},
        {"data": {"$base64": "/w=="}, "content_type": "text/plain"},
        {"data": 1, "content_type": "json"},
    ):
        answer = await queue.http.post(queue.path, json={"records": [{"data": 1}, record]})
        assert refused(answer, 400, "invalid_request")["message"].startswith("Record 1: ")
    assert await queue.counts() == (0, 0)


@settings(max_examples=300, suppress_health_check=[HealthCheck.too_slow])
@given(some.text())
def test_any_text_is_kept_and_shown_byte_for_byte(text: str) -> None:
    payload = text.encode()
    kind = stored_type(payload, type_of(text))
    shown = json.loads(b"{%b}" % _payload(payload, kind, base64=False))
    assert shown["payload"].encode() == payload
    data = json.loads(as_json(payload, kind))
    assert data == (json.loads(text) if kind is None else text)


@settings(max_examples=300)
@given(some.binary(), some.sampled_from(["application/octet-stream", "text/plain", "application/json", "image/png"]))
def test_any_bytes_are_kept_and_shown_byte_for_byte_or_refused(payload: bytes, content_type: str) -> None:
    try:
        kind = stored_type(payload, content_type)
    except InvalidRequest:
        assert content_type in {"text/plain", "application/json"}
        return
    for wanted in (False, True):
        shown = json.loads(b"{%b}" % _payload(payload, kind, base64=wanted))
        text = shown["payload"]
        assert (base64.b64decode(text) if "encoding" in shown else text.encode()) == payload
    json.loads(as_json(payload, kind))


@given(
    some.recursive(
        some.none() | some.booleans() | some.floats(allow_nan=False, allow_infinity=False) | some.text(), some.lists
    )
)
def test_whatever_is_json_is_json(value: object) -> None:
    assert is_json(json.dumps(value).encode()) == ("\\u0000" not in json.dumps(value))
