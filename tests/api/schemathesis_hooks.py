"""What JSON Schema can't say about a good request: schemathesis is told so here, before it sends one.

Only requests that are meant to be good are changed; bad ones go out as they were made.
"""

from __future__ import annotations

from typing import Any

import schemathesis

WAIT_MS = 20  # that a wait is as long as was asked for is tested elsewhere
COUNTED = {"lease_ids", "errors"}  # one for each seq


@schemathesis.hook
def before_call(context: Any, case: Any, kwargs: Any) -> None:
    """Make a good request one that also keeps what its schema has no words for."""
    body = case.body
    if isinstance(body, dict) and type(body.get("wait_ms")) in {int, float}:
        body["wait_ms"] = min(body["wait_ms"], WAIT_MS)
    if case.meta is None or not case.meta.generation.mode.is_positive:
        return
    # Opaque: only one that a list has answered is one.
    for parameters in (case.query, kwargs.get("params")):
        if parameters:
            parameters.pop("cursor", None)
    if not isinstance(body, dict):
        return
    case.body = body = _whole(body)
    seqs = body.get("seqs")
    for name in COUNTED & body.keys():
        if isinstance(seqs, list) and isinstance(body[name], list):
            body[name] = [*body[name], *[""] * len(seqs)][: len(seqs)]
    if isinstance(body.get("name"), str) and not body["name"].isprintable():
        body["name"] = "printable"
    for config in (body, body.get("config")):
        if isinstance(config, dict) and isinstance(config.get("dead_letter"), str):
            config["dead_letter"] = "z" * 255  # not the topic itself
    for record in body.get("records") or ():
        if isinstance(record, dict) and record.get("run_at") is not None:
            record["run_at"] = "2026-01-31T09:00:00+01:00"  # a leap second, or the year 0, is none of ours


@schemathesis.hook
def filter_case(context: Any, case: Any) -> bool:
    """Leave out good requests whose texts are short enough in characters and too long in bytes."""
    return case.meta is None or not case.meta.generation.mode.is_positive or _short(case.body)


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
