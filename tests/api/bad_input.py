"""What no client should send and no schema can say: one list, for the test of each answer and for the test of what they
leave behind. What breaks a bound or a type of the document is sent by schemathesis."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import httpx

MIB = 1024 * 1024


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
    content_type: str | None = "application/json"
    chunks: int = 0
    detail: dict[str, object] = field(default_factory=dict)

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


def _nested(depth: int) -> bytes:
    return b"[" * depth + b"]" * depth


_TEXTS = {  # of a string
    "NUL": rb"\u0000",
    "raw NUL": b"a\0b",
    "not UTF-8": b"\xff",
    "half a character": b"\xc3",
    "a surrogate in UTF-8": b"\xed\xa0\x80",
    "an overlong NUL": b"\xc0\x80",
    "a lone surrogate": rb"\ud800",
    "surrogates the wrong way round": rb"\udc00\ud800",
    "NUL after a backslash": rb"\\\u0000",
}
_NO_JSON = ("", "NaN", "[1,Infinity]", "-Infinity", "01", "1.", "+1", "0x10", "'a'", "[1,]", "undefined", '"\\q"')
_NO_TIMES = ("", "soon", "2026-01-31T09:00:00", "2026-01-31", "2026-02-30T09:00:00Z", "9999-12-31T23:59:59-23:00")
_FIELDS = [
    *((f"data, {name}", b'"data":"%b"' % text) for name, text in _TEXTS.items()),
    *((f"key of data, {name}", b'"data":{"a%b":1}' % text) for name, text in _TEXTS.items() if "backslash" not in name),
    *((f"tag, {name}", b'"data":1,"tag":"%b"' % text) for name, text in _TEXTS.items()),
    *((f"node, {name}", b'"data":1,"node":"%b"' % _TEXTS[name]) for name in ("NUL", "a lone surrogate")),
    *((f"meta, {name}", b'"data":1,"meta":{"a":"%b"}' % text) for name, text in _TEXTS.items()),
    *((f"data: {text}", b'"data":%b' % text.encode()) for text in _NO_JSON),
    *((f"run_at {text}", b'"data":1,"run_at":"%b"' % text.encode()) for text in _NO_TIMES),
    ("without data", b'"tag":"t"'),
    ("half an escape", rb'"data":"\u12"'),
    ("raw newline in data", b'"data":"a\nb"'),
    ("raw NUL between", b'\0"data":1'),
    ("5,000 digits behind a text of such", b'"data":["' + b"7" * 5_000 + b'",' + b"1" * 5_000 + b"]"),
    *((f"{depth} deep", b'"data":' + _nested(depth)) for depth in (129, 10_000)),
    ("200 objects deep", b'"data":' + b'{"a":' * 200 + b"1" + b"}" * 200),
    ("10,000 brackets that nothing closes", b'"data":' + b"[" * 10_000),
    ("meta 200 deep", b'"data":1,"meta":{"a":' + _nested(200) + b"}"),
    ("unknown field 10,000 deep", b'"data":1,"else":' + _nested(10_000)),
    ("tag too long in bytes", f'"data":1,"tag":"{"ü" * 129}"'.encode()),
    ("meta is a list", b'"data":1,"meta":[1]'),
    ("meta of 65 keys", b'"data":1,"meta":%b' % json.dumps({f"k{i}": 1 for i in range(65)}).encode()),
    ("meta too long", f'"data":1,"meta":{{"a":"{"x" * 16_384}"}}'.encode()),
    ("delay for ever", b'"data":1,"delay_ms":%d' % 10**30),
    ("time to live for ever", b'"data":1,"ttl_ms":%d' % 2**64),
]
_TOO_LARGE = {"data": f'"data":"{"x" * MIB}"', "data and meta": f'"data":"{"x" * (MIB - 8)}","meta":{{"a":1}}'}
# A batch of a good record and a bad one: a refusal that comes too late has written the first.
RECORDS = [
    *(Bad(name, TOPIC, b'{"records":[{"data":0},{%b}]}' % fields) for name, fields in _FIELDS),
    *(
        Bad(f"{name} too large", TOPIC, f'{{"records":[{{"data":0}},{{{fields}}}]}}'.encode(), "record_too_large")
        for name, fields in _TOO_LARGE.items()
    ),
    Bad("record is a number", TOPIC, b'{"records":[{"data":0},5]}'),
]

_MANY = [b'{"data":1}'] * 9_999
BATCHES = [
    Bad("no records", TOPIC, b"{}"),
    Bad("records empty", TOPIC, b'{"records":[]}'),
    Bad(
        "10,001 records",
        TOPIC,
        b'{"records":[%b]}' % b",".join(_MANY + _MANY[:2]),
        "batch_too_large",
        detail={"records": 10_001, "max": 10_000},
    ),
    Bad("the last of 10,000 is bad", TOPIC, b'{"records":[%b,{"data":1,"tag":5}]}' % b",".join(_MANY)),
    Bad("node of the batch NUL", TOPIC, rb'{"records":[{"data":1}],"node":"\u0000"}'),
    Bad("idempotency key NUL", TOPIC, rb'{"records":[{"data":1}],"idempotency_key":"\u0000"}'),
    Bad("config bad", TOPIC, b'{"records":[{"data":1}],"config":{"type":"queue","lease_ms":"x"}}'),
]

_WHOLE = b'{"node":"n","seqs":[1],"lease_ms":1,"records":[{"data":1}]}'
BODIES = [
    Bad(f"{name} to {path.rpartition('}')[2] or '/'}", path, body)
    for path in (TOPIC, CLAIM, ACK, NACK, EXTEND, DELETE)
    for name, body in {
        "nothing": b"",
        "space": b"  ",
        "a list": b"[]",
        "null": b"null",
        "half an object": b'{"node":"n",',
        "two objects": b'{"node":"n"}{"node":"n"}',
        "a byte order mark": b"\xef\xbb\xbf" + _WHOLE,
        "UTF-16": _WHOLE.decode().encode("utf-16"),
        "10,000 brackets": _nested(10_000),
        "a field 10,000 deep": b'{"node":"n","else":%b}' % _nested(10_000),
        "a raw NUL": b"\0",
    }.items()
] + [
    Bad("PUT, a list", TOPIC, b"[]", method="PUT"),
    Bad("PUT, space", TOPIC, b" ", method="PUT"),
    Bad("PUT, lease_ms NaN", TOPIC, b'{"type":"queue","lease_ms":NaN}', method="PUT"),
    Bad("PUT, dead_letter NUL", TOPIC, rb'{"type":"queue","dead_letter":"a\u0000"}', method="PUT"),
    Bad("PUT, not UTF-8", TOPIC, b'{"type":"queue","else":"\xff"}', method="PUT"),
]

VERBS = [
    *(Bad(f"claim, node {name}", CLAIM, b'{"node":"%b"}' % text) for name, text in _TEXTS.items()),
    Bad("claim, node too long in bytes", CLAIM, '{"node":"%s"}'.replace("%s", "ü" * 65).encode()),
    *(
        Bad(f"claim, max {text[:9].decode()}", CLAIM, b'{"node":"n","max":%b}' % text)
        for text in (b"1.5", b"NaN", b"1e400", b"9" * 5_000)
    ),
    *(
        Bad(
            f"{path.rpartition('/')[2]}, {name}",
            path,
            b'{%b"node":"n",%b}' % (b'"lease_ms":9,' * (path == EXTEND), text),
        )
        for path in (ACK, NACK, FAIL, EXTEND)
        for name, text in {
            "node NUL": rb'"node":"\u0000","seqs":[1]',
            "seq 1.5": b'"seqs":[1.5]',
            "seq of 5,000 digits": b'"seqs":[1,%b]' % (b"9" * 5_000),
            "a lease id too many": b'"seqs":[1],"lease_ids":["lease_1a","lease_1b"]',
            "a lease id for nothing": b'"seqs":[],"lease_ids":["lease_1a"]',
            "lease id not hexadecimal": b'"seqs":[1],"lease_ids":["lease_xyz"]',
            "lease id and a newline": rb'"seqs":[1],"lease_ids":["lease_1a\n"]',
            "lease id in other digits": '"seqs":[1],"lease_ids":["lease_١"]'.encode(),
        }.items()
    ),
    Bad(
        "1,001 seqs",
        ACK,
        b'{"node":"n","seqs":%b}' % json.dumps(list(range(1, 1002))).encode(),
        "batch_too_large",
        detail={"seqs": 1001, "max": 1000},
    ),
    Bad("nack, an error too many", NACK, b'{"node":"n","seqs":[1],"errors":["a","b"]}'),
    Bad("nack, error NUL", NACK, rb'{"node":"n","seqs":[1],"errors":["\u0000"]}'),
    Bad("nack, error too long", NACK, b'{"node":"n","seqs":[1],"errors":["%b"]}' % (b"x" * 8_193)),
    Bad("fail, an error too many", FAIL, b'{"node":"n","seqs":[1],"errors":["a","b"]}'),
    *(
        Bad(f"{path.rpartition('/')[2]}, {fields[:30]!r}", path, b"{%b}" % fields)
        for path, fields in (
            (DIFF, b'"node":%b' % json.dumps(["n"] * 1001).encode()),
            (DIFF, rb'"node":"\u0000"'),
            (DELETE, b""),
            (DELETE, b'"before_seq":null,"match":null'),
            (DELETE, b'"match":["node","Eq","n"]'),
            (DELETE, b'"match":["tag","Regex","n"]'),
            (DELETE, b'"match":["tag","Glob","n"]'),
            (DELETE, b'"match":["tag","Glob","a*b*"]'),
            (DELETE, b'"match":"a*b*"'),
            (DELETE, rb'"match":"\u0000"'),
        )
    ),
    Bad("watch, 257 topics", "/v0/watch", b'{"topics":%b}' % json.dumps({f"t{i}": {} for i in range(257)}).encode()),
    Bad("watch, a topic's name", "/v0/watch", b'{"topics":{"a b":{}}}'),
]

TYPES = [
    Bad(f"{content_type} to {method} {path}", path, _WHOLE, "unsupported_media_type", 415, method, content_type)
    for method, path in (("PUT", TOPIC), *(("POST", path) for path in (TOPIC, CLAIM, ACK, NACK, EXTEND, DIFF, DELETE)))
    for content_type in (None, "text/plain", "application/x-www-form-urlencoded", "application/jsonp")
]

ROUTES = [
    Bad(f"{method} {path}", path, b"", code, status, method, None)
    for method, path, status, code in (
        ("GET", CLAIM, 405, "method_not_allowed"),
        ("PATCH", TOPIC, 405, "method_not_allowed"),
        ("POST", "/v0/topics/{topic}/work", 405, "method_not_allowed"),
        ("POST", "/healthz", 405, "method_not_allowed"),
        ("GET", "/", 405, "method_not_allowed"),
        ("POST", "/v0/topics/{topic}/steal", 404, "not_found"),
        ("POST", "/v0/topics/{topic}/claim/twice", 404, "not_found"),
    )
]

_BEGINNING = b'{"records":[{"data":"'
_MOST: dict[str, object] = {"max_bytes": 64 * MIB}
HUGE = [
    Bad("70 MiB at once", TOPIC, _BEGINNING + b"x" * (70 * MIB) + b'"}]}', "payload_too_large", 413, detail=_MOST),
    Bad("70 MiB in chunks", TOPIC, b"x" * MIB, "payload_too_large", 413, chunks=70, detail=_MOST),
    Bad("70 MiB in chunks to a claim", CLAIM, b" " * MIB, "payload_too_large", 413, chunks=70),
    Bad("60 MiB that are no JSON", TOPIC, b"[" * MIB, chunks=60),
    Bad("60 MiB of one record", TOPIC, _BEGINNING + b"x" * (60 * MIB) + b'"}]}', "record_too_large"),
]

GROUPS = {
    **{"records": RECORDS, "batches": BATCHES, "bodies": BODIES, "verbs": VERBS},
    **{"types": TYPES, "routes": ROUTES, "huge": HUGE},
}
ALL = [bad for group in GROUPS.values() for bad in group]
