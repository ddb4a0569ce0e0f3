"""What JSON Schema can't say about a good request: schemathesis is told so here, before it sends one.

Only requests that are meant to be good are changed; bad ones go out as they were made.
"""

from __future__ import annotations

import os
from typing import Any

import schemathesis

WAIT_MS = 20  # that a wait is as long as was asked for is tested elsewhere
RUN_AT = "2026-01-31T09:00:00+01:00"  # a leap second, or the year 0, is none of ours
CHECKED = "checked"  # the topic that gets schemas
NOTHING = {"lease_ids": "", "visible_at": 0}  # and null in the others
TOPIC = os.environ.get("HOLDFAST_TEST_TOPIC")  # where jobs go all their way, and not each to a topic of its own
COUNTED = {"lease_ids", "errors", "results", "progress", "visible_at"}  # one for each seq, or id


# Settings of the messages dialect that v0 has another name for: a body names one of the two.
TWICE = {
    "max_retries": "max_deliveries",
    "dlq_threshold": "max_deliveries",
    "message_ttl_seconds": "ttl_ms",
    "visibility_timeout_seconds": "lease_ms",
    "replay_window_seconds": "replay_window_ms",
}


@schemathesis.hook
def before_load_schema(context: Any, raw_schema: dict[str, Any]) -> None:
    """It can make no bodies of an object that takes no other fields and has such rules beside them: see _one_of_two."""
    del raw_schema["components"]["schemas"]["TopicConfigBody"]["allOf"]


@schemathesis.hook
def before_call(context: Any, case: Any, kwargs: Any) -> None:
    """Make a good request one that also keeps what its schema has no words for."""
    body = case.body
    for name, most in (("wait_ms", WAIT_MS), ("wait_seconds", WAIT_MS / 1000)):
        if isinstance(body, dict) and type(body.get(name)) in {int, float}:
            body[name] = min(body[name], most)
    if case.meta is None or not case.meta.generation.mode.is_positive:
        return
    _to_one_topic(case)
    _unseen(case.path, case.headers)
    _unseen(case.path, kwargs.get("headers"))
    _query(case.query, case.path)
    _query(kwargs.get("params"), case.path)
    if not isinstance(body, dict):
        return
    case.body = body = _whole(body)
    seqs = body.get("seqs", body.get("ids"))
    for name in COUNTED & body.keys():
        if isinstance(seqs, list) and isinstance(body[name], list):
            body[name] = [*body[name], *[NOTHING.get(name)] * len(seqs)][: len(seqs)]
    if case.path == "/v0/keys" and body.get("tenant") is not None:
        body["scopes"] = ["read", "write"]  # more such a key can't have
    if "schedule" in body:
        body["schedule"] = "*/5 3 * * 1-5"
    _timed(body)
    _names(body)
    for config in (body, body.get("config")):
        if isinstance(config, dict) and isinstance(config.get("dead_letter"), str):
            config["dead_letter"] = "z" * 255  # not the topic itself
    _one_of_two(case, body)
    _unhooked(body)
    _schema(case, body)
    _job_change(case, body)
    for record in body.get("records") or ():
        _record(record)
    for message in [body, *(body.get("messages") or ())]:
        _payload(message)


@schemathesis.hook
def filter_case(context: Any, case: Any) -> bool:
    """Leave out good requests whose texts are short enough in characters and too long in bytes, and those that meet a
    topic's name that an earlier answer had and that is kept for dead letters, or has a schema."""
    if case.meta is None or not case.meta.generation.mode.is_positive:
        return True
    named = [where.get("topic") for where in (case.path_parameters, case.body) if isinstance(where, dict)]
    if case.path.startswith("/api/") and any(isinstance(name, str) and name.endswith(".dlq") for name in named):
        return False
    if CHECKED in named and case.method in {"POST", "PATCH"}:
        return False
    return _short(case.body)


def _to_one_topic(case: Any) -> None:
    for where in (case.path_parameters, case.body):
        if TOPIC is not None and isinstance(where, dict) and "topic" in where:
            where["topic"] = TOPIC


def _one_of_two(case: Any, body: dict[str, Any]) -> None:
    """A setting goes by one of its names; who takes jobs sees them; leases are named by seqs or by group."""
    if case.path == "/api/topic-configs/{topic}":
        body.pop("topic", None)  # it stands in the path
        for seconds, milliseconds in TWICE.items():
            if body.get(milliseconds) is not None:
                body.pop(seconds, None)
        if body.get("max_deliveries") is None:
            body.pop("on_exhausted", None)
    if case.path == "/api/users/{id}/grants" and body.get("action") == "consume":
        body.pop("payloads", None)
    if case.path == "/v0/topics/{topic}/release":
        if body.get("seqs") is not None:
            body.pop("group", None)
        else:
            body.pop("visible_at", None)
        if body.get("group") is None:
            body.pop("tenant", None)
            if body.get("seqs") is None:
                body["node"] = "n"


def _unhooked(body: Any) -> None:
    """A record's webhook needs a secret of its topic, or of the service; and nobody hears of a topic's."""
    for config in (body, body.get("config")):
        if isinstance(config, dict) and isinstance(config.get("webhook"), dict):
            config["webhook"] = {"secret": "long enough"}
    for record in (body, body.get("record"), *(body.get("records") or ()), *(body.get("messages") or ())):
        if isinstance(record, dict) and isinstance(record.get("webhook"), str):
            record["webhook"] = None


def _names(body: Any) -> None:
    """Names are on one line, which is more than a pattern says; a password's bytes are bounded, not its characters."""
    for name in ("name", "username"):
        if isinstance(body.get(name), str) and not body[name].isprintable():
            body[name] = "printable"
    if isinstance(body.get("password"), str) and not body["password"].isascii():
        body["password"] = "twelve characters"


def _unseen(path: str, headers: Any) -> None:
    """Of a watch's ids, only one that an event had is one."""
    for name in [name for name in headers or () if name.lower() == "last-event-id"]:
        if path == "/v0/watch/{wid}":
            del headers[name]


def _query(parameters: Any, path: str) -> None:
    """A cursor is opaque: only one that a list has answered is one. And what needs a topic, or a group,
    has one."""
    if not parameters:
        return
    if "wait_ms" in parameters:
        parameters["wait_ms"] = WAIT_MS
    parameters.pop("cursor", None)
    if "data" in parameters:
        parameters["data"] = ["order.id=17"]  # a path has so many keys at most
    if path.endswith("/explain") and "group" not in parameters:
        parameters.pop("tenant", None)
    if path == "/api/messages" and "topic" not in parameters:
        parameters.pop("status", None)
        parameters.pop("suspected_poison", None)
        parameters.pop("offset", None)


def _schema(case: Any, body: dict[str, Any]) -> None:
    """Most JSON is no schema; and what has one must not be where the payloads of other requests go."""
    for config in (body, body.get("config")):
        if isinstance(config, dict) and "schema" in config:
            config["schema"] = None
    if "schema_json" in body:
        body |= {"schema_json": {"type": "object"}, "format": None}
        case.path_parameters = {"topic": CHECKED}


def _timed(body: dict[str, Any]) -> None:
    """Most texts are no cron expression and no time zone; and a schedule says itself when its job may run."""
    if "cron" in body:
        body |= {"cron": "*/5 3 * * 1-5", "time_zone": "Europe/Berlin"}
    if isinstance(body.get("record"), dict):
        body["record"].pop("run_at", None)
        _record(body["record"])


def _job_change(case: Any, body: dict[str, Any]) -> None:
    """A change changes something; what is cancelled is named in one of two ways."""
    if case.path == "/v0/topics/{topic}/jobs/{seq}" and case.method == "PATCH":
        _record(body)
        body.setdefault("tag", "t")
        if "data" not in body:
            body.pop("content_type", None)
    if case.path in {"/v0/topics/{topic}/cancel", "/v0/topics/{topic}/operations"}:
        if body.get("seqs") is not None:
            body.pop("filter", None)
        elif all(value is None for value in (body.get("filter") or {}).values()):
            body["filter"] = {"older_than_ms": 0}
        if body.get("filter", {}).get("data"):
            body["filter"]["data"] = ["order.id=17"]


def _record(record: Any) -> None:
    if not isinstance(record, dict):
        return
    if record.get("run_at") is not None:
        record["run_at"] = RUN_AT
    if record.get("priority") is not None:
        record["priority"] %= 10  # more levels are for topics whose priority_order is lowest_first
    if record.get("content_type") is not None:
        record["content_type"] = "application/json"  # which any data is


def _payload(message: Any) -> None:
    """What an encoding or a content type says of a payload is true."""
    if not isinstance(message, dict) or "payload" not in message:
        return
    if message.get("run_at") is not None:
        message["run_at"] = RUN_AT
    if message.get("encoding") is not None:
        message["payload"] = "AA=="
    if message.get("content_type") is not None:
        message["content_type"] = "image/png"  # which any bytes may be


def _whole(value: Any) -> Any:
    """JSON Schema takes 5.0 for an integer; the dialect does not, but where any JSON will do."""
    if isinstance(value, dict):
        return {name: one if name in {"data", "meta"} else _whole(one) for name, one in value.items()}
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return [_whole(one) for one in value] if isinstance(value, list) else value


def _short(value: Any) -> bool:
    if isinstance(value, dict):
        return all(_short(one) for one in value.values())
    if isinstance(value, list):
        return all(_short(one) for one in value)
    return not isinstance(value, str) or value.isascii() or len(value) <= 32
