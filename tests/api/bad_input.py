"""What no client should send: one list, for the test of each answer and for the test of what they leave behind."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import httpx

MIB = 1024 * 1024
JSON = "application/json"


@dataclass(frozen=True, slots=True)
class Bad:
    """A request on a topic, and its refusal. `{topic}` in `path` is a queue with one job leased to "n". `chunks`: the
    body is sent chunked, in so many pieces of `body`. `detail`: what the error's detail must hold."""

    name: str
    path: str
    body: bytes
    code: str = "invalid_request"
    status: int = 400
    method: str = "POST"
    content_type: str | None = JSON
    chunks: int = 0
    detail: dict[str, object] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.name

    async def send(self, http: httpx.AsyncClient, topic: str) -> httpx.Response:
        headers = {} if self.content_type is None else {"content-type": self.content_type}
        content = self._pieces() if self.chunks else self.body
        return await http.request(self.method, self.path.format(topic=topic), content=content, headers=headers)

    async def _pieces(self) -> AsyncIterator[bytes]:
        for _ in range(self.chunks):
            yield self.body


TOPIC, CLAIM, ACK, NACK, FAIL, EXTEND, DIFF, DELETE = (
    f"/v0/topics/{{topic}}{verb}" for verb in ("", "/claim", "/ack", "/nack", "/fail", "/extend", "/diff", "/delete")
)
NODE = b'"node":"n"'


def _record(text: bytes | str, name: str, code: str = "invalid_request") -> Bad:
    """A batch of a good record and this one: a refusal that comes too late has written the first."""
    fields = text.encode() if isinstance(text, str) else text
    return Bad(f"record, {name}", TOPIC, b'{"records":[{"data":0},{%b}]}' % fields, code)


def _nested(depth: int) -> bytes:
    return b"[" * depth + b"]" * depth


RECORDS = [
    _record('"tag":"t"', "without data"),
    _record('"data":', "data of nothing"),
    _record('"data":NaN', "NaN"),
    _record('"data":[1,Infinity]', "Infinity"),
    _record('"data":-Infinity', "-Infinity"),
    _record('"data":01', "leading zero"),
    _record('"data":1.', "number without its end"),
    _record('"data":+1', "plus"),
    _record('"data":0x10', "hexadecimal"),
    _record("\"data\":'a'", "single quotes"),
    _record('"data":[1,]', "trailing comma"),
    _record('"data":undefined', "undefined"),
    _record(r'"data":"\q"', "unknown escape"),
    _record(r'"data":"\u12"', "half an escape"),
    _record(b'"data":"a\nb"', "raw newline in data"),
    _record(b'"data":"a\0b"', "raw NUL in data"),
    _record(b'"data":"a","tag":"a\0b"', "raw NUL in tag"),
    _record(b'\0"data":1', "raw NUL between"),
    _record(r'"data":"a\u0000"', "NUL in data"),
    _record(r'"data":{"a\u0000":1}', "NUL in a key of data"),
    _record(r'"data":"\\\u0000"', "NUL after a backslash"),
    _record(r'"data":1,"tag":"\u0000"', "NUL in tag"),
    _record(r'"data":1,"node":"\u0000"', "NUL in node"),
    _record(r'"data":1,"meta":{"a":"\u0000"}', "NUL in meta"),
    _record(r'"data":1,"meta":{"\u0000":1}', "NUL in a key of meta"),
    _record(b'"data":"\xff"', "data is not UTF-8"),
    _record(b'"data":"\xc3"', "data ends within a character"),
    _record(b'"data":"\xed\xa0\x80"', "data with a surrogate in UTF-8"),
    _record(b'"data":"\xc0\x80"', "data with an overlong NUL"),
    _record(b'"data":1,"tag":"\xff"', "tag is not UTF-8"),
    _record(b'"data":1,"meta":{"a":"\xfe"}', "meta is not UTF-8"),
    _record(r'"data":1,"tag":"\ud800"', "lone surrogate in tag"),
    _record(r'"data":1,"tag":"\udc00\ud800"', "surrogates the wrong way round"),
    _record(r'"data":1,"node":"\ud800"', "lone surrogate in node"),
    _record(r'"data":"\ud800"', "lone surrogate in data"),
    _record(r'"data":{"a\udfff":1}', "lone surrogate in a key of data"),
    _record(r'"data":1,"meta":{"a":"\ud800"}', "lone surrogate in meta"),
    _record(r'"data":1,"meta":{"\ud800":1}', "lone surrogate in a key of meta"),
    _record(b'"data":["' + b"7" * 5_000 + b'",' + b"1" * 5_000 + b"]", "integer of 5,000 digits behind a text of such"),
    _record(b'"data":' + _nested(129), "129 deep"),
    _record(b'"data":' + _nested(200), "200 deep"),
    _record(b'"data":' + _nested(10_000), "10,000 deep"),
    _record(b'"data":' + b'{"a":' * 200 + b"1" + b"}" * 200, "200 objects deep"),
    _record(b'"data":' + b'{"a":' * 10_000 + b"1" + b"}" * 10_000, "10,000 objects deep"),
    _record(b'"data":' + b"[" * 10_000, "10,000 brackets that nothing closes"),
    _record(b'"data":1,"meta":{"a":' + _nested(200) + b"}", "meta 200 deep"),
    _record(b'"data":1,"else":' + _nested(10_000), "unknown field 10,000 deep"),
    _record('"data":1,"tag":5', "tag is a number"),
    _record('"data":1,"tag":["a"]', "tag is a list"),
    _record(f'"data":1,"tag":"{"x" * 257}"', "tag too long"),
    _record(f'"data":1,"tag":"{"ü" * 129}"', "tag too long in bytes"),
    _record('"data":1,"node":5', "node is a number"),
    _record(f'"data":1,"node":"{"x" * 129}"', "node too long"),
    _record('"data":1,"meta":"a"', "meta is a string"),
    _record('"data":1,"meta":[1]', "meta is a list"),
    _record('"data":1,"meta":5', "meta is a number"),
    _record('"data":1,"meta":true', "meta is true"),
    _record(f'"data":1,"meta":{json.dumps({f"k{i}": 1 for i in range(65)})}', "meta of 65 keys"),
    _record(f'"data":1,"meta":{{"a":"{"x" * 16_384}"}}', "meta too long"),
    _record(f'"data":"{"x" * MIB}"', "data too large", "record_too_large"),
    _record(f'"data":"{"x" * (MIB - 8)}","meta":{{"a":1}}', "data and meta too large", "record_too_large"),
    _record('"data":1,"priority":10', "priority 10"),
    _record('"data":1,"priority":-1', "priority -1"),
    _record('"data":1,"priority":1.5', "priority 1.5"),
    _record('"data":1,"priority":"1"', "priority is a string"),
    _record('"data":1,"delay_ms":-1', "delay below 0"),
    _record(f'"data":1,"delay_ms":{10**30}', "delay for ever"),
    _record('"data":1,"delay_ms":"5"', "delay is a string"),
    _record('"data":1,"ttl_ms":-1', "time to live below 0"),
    _record(f'"data":1,"ttl_ms":{2**64}', "time to live for ever"),
    _record('"data":1,"max_deliveries":-1', "deliveries below 0"),
    _record('"data":1,"max_deliveries":10001', "too many deliveries"),
    _record('"data":1,"run_at":5', "time is a number"),
    _record('"data":1,"run_at":""', "time is empty"),
    _record('"data":1,"run_at":"soon"', "time is a word"),
    _record('"data":1,"run_at":"2026-01-31T09:00:00"', "time without zone"),
    _record('"data":1,"run_at":"2026-01-31"', "time is a day"),
    _record('"data":1,"run_at":"2026-02-30T09:00:00Z"', "time is no day"),
    _record('"data":1,"run_at":"9999-12-31T23:59:59-23:00"', "time beyond time"),
    Bad("record is a number", TOPIC, b'{"records":[{"data":0},5]}'),
    Bad("record is null", TOPIC, b'{"records":[{"data":0},null]}'),
]

BATCHES = [
    Bad("no records", TOPIC, b"{}"),
    Bad("records null", TOPIC, b'{"records":null}'),
    Bad("records empty", TOPIC, b'{"records":[]}'),
    Bad("records an object", TOPIC, b'{"records":{"data":1}}'),
    Bad(
        "10,001 records",
        TOPIC,
        b'{"records":[%b]}' % b",".join([b'{"data":1}'] * 10_001),
        "batch_too_large",
        detail={"records": 10_001, "max": 10_000},
    ),
    Bad(
        "the last of 10,000 is bad",
        TOPIC,
        b'{"records":[%b,{"data":1,"tag":5}]}' % b",".join([b'{"data":1}'] * 9_999),
    ),
    Bad("node of the batch a number", TOPIC, b'{"records":[{"data":1}],"node":5}'),
    Bad("node of the batch too long", TOPIC, b'{"records":[{"data":1}],"node":"%b"}' % (b"x" * 129)),
    Bad("node of the batch NUL", TOPIC, rb'{"records":[{"data":1}],"node":"\u0000"}'),
    Bad("idempotency key a number", TOPIC, b'{"records":[{"data":1}],"idempotency_key":5}'),
    Bad("idempotency key empty", TOPIC, b'{"records":[{"data":1}],"idempotency_key":""}'),
    Bad("idempotency key too long", TOPIC, b'{"records":[{"data":1}],"idempotency_key":"%b"}' % (b"x" * 257)),
    Bad("idempotency key NUL", TOPIC, rb'{"records":[{"data":1}],"idempotency_key":"\u0000"}'),
    Bad("create a string", TOPIC, b'{"records":[{"data":1}],"create":"yes"}'),
    Bad("config a string", TOPIC, b'{"records":[{"data":1}],"config":"queue"}'),
    Bad("config bad", TOPIC, b'{"records":[{"data":1}],"config":{"type":"queue","lease_ms":"x"}}'),
]

BODIES = [
    Bad(f"{name} to {path.rpartition('}')[2] or '/'}", path, body)
    for path in (TOPIC, CLAIM, ACK, NACK, EXTEND, DELETE)
    for name, body in {
        "nothing": b"",
        "space": b"  ",
        "a list": b"[]",
        "null": b"null",
        "a string": b'"node"',
        "half an object": b'{"node":"n",',
        "two objects": b'{"node":"n"}{"node":"n"}',
        "a byte order mark": b'\xef\xbb\xbf{"node":"n","seqs":[1],"lease_ms":1,"records":[{"data":1}]}',
        "UTF-16": '{"node":"n","seqs":[1],"lease_ms":1,"records":[{"data":1}]}'.encode("utf-16"),
        "10,000 brackets": _nested(10_000),
        "a field 10,000 deep": b'{"node":"n","else":%b}' % _nested(10_000),
        "a raw NUL": b"\0",
    }.items()
]

CLAIMS = [
    Bad("claim without node", CLAIM, b"{}"),
    Bad("claim, node null", CLAIM, b'{"node":null}'),
    Bad("claim, node empty", CLAIM, b'{"node":""}'),
    Bad("claim, node a number", CLAIM, b'{"node":1}'),
    Bad("claim, node too long", CLAIM, b'{"node":"%b"}' % (b"x" * 129)),
    Bad("claim, node too long in bytes", CLAIM, '{"node":"%s"}'.replace("%s", "ü" * 65).encode()),
    Bad("claim, node NUL", CLAIM, rb'{"node":"\u0000"}'),
    Bad("claim, node a surrogate", CLAIM, rb'{"node":"\ud800"}'),
    Bad("claim, node not UTF-8", CLAIM, b'{"node":"\xff"}'),
    Bad("claim, max a string", CLAIM, b'{"node":"n","max":"5"}'),
    Bad("claim, max below 0", CLAIM, b'{"node":"n","max":-1}'),
    Bad("claim, max 1.5", CLAIM, b'{"node":"n","max":1.5}'),
    Bad("claim, max NaN", CLAIM, b'{"node":"n","max":NaN}'),
    Bad("claim, max 1e400", CLAIM, b'{"node":"n","max":1e400}'),
    Bad("claim, max of 5,000 digits", CLAIM, b'{"node":"n","max":%b}' % (b"9" * 5_000)),
    Bad("claim, lease_ms a string", CLAIM, b'{"node":"n","lease_ms":"5"}'),
    Bad("claim, lease_ms below 0", CLAIM, b'{"node":"n","lease_ms":-1}'),
    Bad("claim, wait_ms too long", CLAIM, b'{"node":"n","wait_ms":30001}'),
    Bad("claim, wait_ms below 0", CLAIM, b'{"node":"n","wait_ms":-1}'),
]

READS = [
    Bad(f"{path.rpartition('/')[2]}, {name}", path, b"{%b}" % fields)
    for path, name, fields in (
        (DIFF, "from_seq below 0", b'"from_seq":-1'),
        (DIFF, "from_seq a string", b'"from_seq":"1"'),
        (DIFF, "limit below 0", b'"limit":-1'),
        (DIFF, "node a number", b'"node":5'),
        (DIFF, "node too long", b'"node":["%b"]' % (b"x" * 129)),
        (DIFF, "1,001 nodes", b'"node":%b' % json.dumps(["n"] * 1001).encode()),
        (DIFF, "node NUL", rb'"node":"\u0000"'),
        (DIFF, "wait_ms a string", b'"wait_ms":"1"'),
        (DIFF, "include_meta a number", b'"include_meta":1'),
        (DELETE, "nothing to go by", b""),
        (DELETE, "nulls", b'"before_seq":null,"match":null'),
        (DELETE, "before_seq below 0", b'"before_seq":-1'),
        (DELETE, "match a number", b'"match":1'),
        (DELETE, "match empty", b'"match":[]'),
        (DELETE, "match of a node", b'"match":["node","Eq","n"]'),
        (DELETE, "match by regex", b'"match":["tag","Regex","n"]'),
        (DELETE, "glob without a star", b'"match":["tag","Glob","n"]'),
        (DELETE, "glob with a star inside", b'"match":["tag","Glob","a*b*"]'),
        (DELETE, "text with a star inside", b'"match":"a*b*"'),
        (DELETE, "match too long", b'"match":"%b"' % (b"x" * 257)),
        (DELETE, "match NUL", rb'"match":"\u0000"'),
    )
]


def _settling(fields: bytes | str, name: str, code: str = "invalid_request", **detail: object) -> list[Bad]:
    text = fields.encode() if isinstance(fields, str) else fields
    return [
        Bad(f"{verb}, {name}", path, b"{%b%b}" % (b'"lease_ms":1000,' * (verb == "extend"), text), code, detail=detail)
        for verb, path in (("ack", ACK), ("nack", NACK), ("fail", FAIL), ("extend", EXTEND))
    ]


SETTLEMENTS = [
    *_settling('"seqs":[1]', "without node"),
    *_settling('"node":"","seqs":[1]', "node empty"),
    *_settling('"node":5,"seqs":[1]', "node a number"),
    *_settling(b'"node":"%b","seqs":[1]' % (b"x" * 129), "node too long"),
    *_settling(r'"node":"\u0000","seqs":[1]', "node NUL"),
    *_settling(r'"node":"\udfff","seqs":[1]', "node a surrogate"),
    *_settling('"node":"n"', "without seqs"),
    *_settling('"node":"n","seqs":1', "seqs a number"),
    *_settling('"node":"n","seqs":["1"]', "seq a string"),
    *_settling('"node":"n","seqs":[null]', "seq null"),
    *_settling('"node":"n","seqs":[1.5]', "seq 1.5"),
    *_settling('"node":"n","seqs":[1,-1]', "seq -1"),
    *_settling(b'"node":"n","seqs":[1,%b]' % (b"9" * 5_000), "seq of 5,000 digits"),
    *_settling(b'"node":"n","seqs":[1,1e999]', "seq 1e999"),
    *_settling(
        f'"node":"n","seqs":{json.dumps(list(range(1, 1002)))}', "1,001 seqs", "batch_too_large", seqs=1001, max=1000
    ),
    *_settling('"node":"n","seqs":[1],"lease_ids":["lease_1a","lease_1b"]', "a lease id too many"),
    *_settling('"node":"n","seqs":[1,2],"lease_ids":["lease_1a"]', "a lease id too few"),
    *_settling('"node":"n","seqs":[],"lease_ids":["lease_1a"]', "a lease id for nothing"),
    *_settling('"node":"n","seqs":[1],"lease_ids":["1a2b"]', "lease id without its beginning"),
    *_settling('"node":"n","seqs":[1],"lease_ids":["lease_"]', "lease id without its end"),
    *_settling('"node":"n","seqs":[1],"lease_ids":["lease_xyz"]', "lease id not hexadecimal"),
    *_settling(r'"node":"n","seqs":[1],"lease_ids":["lease_1a\n"]', "lease id and a newline"),
    *_settling('"node":"n","seqs":[1],"lease_ids":["lease_١"]', "lease id in other digits"),
    *_settling('"node":"n","seqs":[1],"lease_ids":[5]', "lease id a number"),
    *_settling('"node":"n","seqs":[1],"lease_ids":[null]', "lease id null"),
    *_settling('"node":"n","seqs":[1],"lease_ids":"lease_1a"', "lease ids a string"),
    Bad("extend without lease_ms", EXTEND, b'{"node":"n","seqs":[1]}'),
    Bad("extend, lease_ms null", EXTEND, b'{"node":"n","seqs":[1],"lease_ms":null}'),
    Bad("extend, lease_ms below 0", EXTEND, b'{"node":"n","seqs":[1],"lease_ms":-1}'),
    Bad("extend, lease_ms a string", EXTEND, b'{"node":"n","seqs":[1],"lease_ms":"9"}'),
    Bad("nack, delay_ms below 0", NACK, b'{"node":"n","seqs":[1],"delay_ms":-1}'),
    Bad("nack, delay_ms a string", NACK, b'{"node":"n","seqs":[1],"delay_ms":"1"}'),
    Bad("nack, an error too many", NACK, b'{"node":"n","seqs":[1],"errors":["a","b"]}'),
    Bad("nack, error NUL", NACK, rb'{"node":"n","seqs":[1],"errors":["\u0000"]}'),
    Bad("nack, error too long", NACK, b'{"node":"n","seqs":[1],"errors":["%b"]}' % (b"x" * 8_193)),
    Bad("nack, refund a number", NACK, b'{"node":"n","seqs":[1],"refund":1}'),
    Bad("fail, an error too many", FAIL, b'{"node":"n","seqs":[1],"errors":["a","b"]}'),
    Bad("fail, error too long", FAIL, b'{"node":"n","seqs":[1],"errors":["%b"]}' % (b"x" * 8_193)),
]

PUTS = [
    Bad(f"PUT, {name}", TOPIC, b'{"type":"queue",%b}' % fields, method="PUT")
    for name, fields in {
        "lease_ms a string": b'"lease_ms":"30000"',
        "lease_ms below 0": b'"lease_ms":-1',
        "lease_ms NaN": b'"lease_ms":NaN',
        "durable a string": b'"durable":"yes"',
        "durability unknown": b'"durability":"gold"',
        "discard unknown": b'"discard":"new"',
        "max_deliveries below 0": b'"max_deliveries":-1',
        "max_deliveries too many": b'"max_deliveries":10001',
        "priority too high": b'"priority":%d' % 2**31,
        "on_exhausted unknown": b'"on_exhausted":"explode"',
        "backoff unknown": b'"backoff":{"kind":"fibonacci"}',
        "backoff, cap_ms too long": b'"backoff":{"kind":"fixed","cap_ms":86400001}',
        "dead_letter NUL": rb'"dead_letter":"a\u0000"',
        "dead_letter a surrogate": rb'"dead_letter":"\ud800"',
        "not UTF-8": b'"else":"\xff"',
        "10,000 deep": b'"else":' + _nested(10_000),
    }.items()
] + [
    Bad("PUT, type unknown", TOPIC, b'{"type":"stack"}', method="PUT"),
    Bad("PUT, type a number", TOPIC, b'{"type":1}', method="PUT"),
    Bad("PUT, a list", TOPIC, b"[]", method="PUT"),
    Bad("PUT, space", TOPIC, b" ", method="PUT"),
]

TYPES = [
    Bad(
        f"{content_type} to {method} {path.rpartition('}')[2] or '/'}",
        path,
        b'{"node":"n","seqs":[1],"lease_ms":1000,"records":[{"data":1}],"type":"queue"}',
        "unsupported_media_type",
        415,
        method,
        content_type,
    )
    for method, path in (
        ("PUT", TOPIC),
        ("POST", TOPIC),
        *(("POST", path) for path in (CLAIM, ACK, NACK, EXTEND, DIFF, DELETE)),
    )
    for content_type in (None, "text/plain", "application/x-www-form-urlencoded", "application/jsonp")
]

ROUTES = [
    Bad(f"{method} {path}", path, b"", code, status, method, None)
    for method, path, status, code in (
        ("GET", CLAIM, 405, "method_not_allowed"),
        ("PUT", ACK, 405, "method_not_allowed"),
        ("DELETE", NACK, 405, "method_not_allowed"),
        ("PATCH", TOPIC, 405, "method_not_allowed"),
        ("POST", "/v0/topics/{topic}/work", 405, "method_not_allowed"),
        ("POST", "/v0/topics", 405, "method_not_allowed"),
        ("POST", "/healthz", 405, "method_not_allowed"),
        ("GET", "/", 404, "not_found"),
        ("GET", "/v1/topics/{topic}", 404, "not_found"),
        ("POST", "/v0/topics/{topic}/steal", 404, "not_found"),
        ("POST", "/v0/topics/{topic}/claim/twice", 404, "not_found"),
        ("GET", "/v0/topics/{topic}.absent", 404, "topic_not_found"),
    )
] + [
    Bad(f"unknown topic, {path.rpartition('}')[2] or '/'}", path.replace("}", "}.absent"), body, "topic_not_found", 404)
    for path, body in (
        (TOPIC, b'{"records":[{"data":1}],"create":false}'),
        (DIFF, b"{}"),
        (DELETE, b'{"before_seq":5}'),
        (CLAIM, b'{"node":"n"}'),
        (ACK, b'{"node":"n","seqs":[1]}'),
        (NACK, b'{"node":"n","seqs":[]}'),
        (EXTEND, b'{"node":"n","seqs":[1],"lease_ms":5}'),
    )
]

_BEGINNING = b'{"records":[{"data":"'
HUGE = [
    Bad(
        "70 MiB with its length",
        TOPIC,
        _BEGINNING + b"x" * (70 * MIB) + b'"}]}',
        "payload_too_large",
        413,
        detail={"max_bytes": 64 * MIB},
    ),
    Bad(
        "70 MiB in chunks",
        TOPIC,
        b"x" * MIB,
        "payload_too_large",
        413,
        chunks=70,
        detail={"max_bytes": 64 * MIB},
    ),
    Bad("70 MiB in chunks to a claim", CLAIM, b" " * MIB, "payload_too_large", 413, chunks=70),
    Bad("60 MiB that are no JSON", TOPIC, b"[" * MIB, chunks=60),
    Bad("60 MiB of one record", TOPIC, _BEGINNING + b"x" * (60 * MIB) + b'"}]}', "record_too_large"),
]

WATCHES = [
    Bad(f"watch, {name}", "/v0/watch", b"{%b}" % fields)
    for name, fields in [
        ("topics empty", b'"topics":{}'),
        ("257 topics", b'"topics":%b' % json.dumps({f"t{i}": {} for i in range(257)}).encode()),
        ("a topic's name", b'"topics":{"a b":{}}'),
    ]
]

ALL = [*RECORDS, *BATCHES, *BODIES, *CLAIMS, *READS, *WATCHES, *SETTLEMENTS, *PUTS, *TYPES, *ROUTES, *HUGE]
