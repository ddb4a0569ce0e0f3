"""app/http/examples.json: a request and its answers for each route, as its page has them, taken from a real run."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

from tests.manual import Call, Ran
from tests.routes import document
from tests.settings import newer, without

FILE = Path(__file__).parents[1] / "app/http/examples.json"
# Which page has a route's example, by the start of its path; the first that fits.
_PAGES = (
    ("/api/topic-configs", "docs/configuration.md"),
    ("/api/topic-schemas", "docs/enqueue.md"),
    ("/api/admin/", "docs/operations/processes.md"),
    ("/api/auth/login", "docs/keys.md"),
    ("/api/auth/refresh", "docs/keys.md"),
    ("/api/users", "docs/keys.md"),
    ("/api/messages/{id}/requeue", "docs/dead-letters.md"),
    ("/api/topics/{topic}/requeue", "docs/dead-letters.md"),
    ("/v0/topics/{topic}/requeue", "docs/dead-letters.md"),
    ("/v0/overview", "docs/admin.md"),
    ("/v0/views", "docs/admin.md"),
    ("/v0/topics/{topic}/stats/history", "docs/explain.md"),
    ("/v0/topics/{topic}/stats", "docs/order.md"),
    ("/v0/topics/{topic}/failures", "docs/dead-letters.md"),
    ("/v0/topics/{topic}/jobs/{seq}/result", "docs/jobs.md"),
    ("/v0/topics/{topic}/jobs/{seq}/", "docs/explain.md"),
    ("/v0/topics/{topic}/jobs", "docs/jobs.md"),
    ("/v0/topics/{topic}/cancel", "docs/jobs.md"),
    ("/v0/topics/{topic}/release", "docs/jobs.md"),
    ("/v0/topics/{topic}/explain", "docs/explain.md"),
    ("/v0/topics/{topic}/operations", "docs/jobs.md"),
    ("/v0/topics/{topic}/asof", "docs/explain.md"),
    ("/v0/topics/{topic}/pause", "docs/jobs.md"),
    ("/v0/topics/{topic}/resume", "docs/jobs.md"),
    ("/v0/topics/{topic}/drain", "docs/jobs.md"),
    ("/v0/topics/{topic}/fail", "docs/retries.md"),
    ("/api/messages/{id}/nack", "docs/retries.md"),  # with both of its answers
    ("/v0/schedules", "docs/schedules.md"),
    ("/v0/users/", "docs/webhooks.md"),
    ("/in/", "docs/webhooks.md"),
    ("/v0/operations/", "docs/dead-letters.md"),
    ("/api/", "docs/messages.md"),
    ("/", "docs/v0.md"),
)


def check_or_write(page: str, ran: Iterable[Ran]) -> None:
    """Hold the file against a run of a page: the same requests, and answers of the same shape. With
    HOLDFAST_TEST_WRITE_EXAMPLES=1 (`make examples`), write what the page has of it."""
    found = {name: one for name, one in _of(ran).items() if page_of(name) == page}
    every = json.loads(FILE.read_text())
    assert FILE.read_text() == text(every), "make examples writes app/http/examples.json anew"
    if os.environ.get("HOLDFAST_TEST_WRITE_EXAMPLES"):
        others = {name: one for name, one in every.items() if page_of(name) != page}
        every = dict(sorted((others | found).items(), key=lambda item: item[0].split(" ")[::-1]))
        FILE.write_text(text(every))
    kept = {name: every[name] for name in every if page_of(name) == page}
    assert _shape(kept) == _shape(without(newer(FILE.read_text()), found)), (
        "make examples writes app/http/examples.json anew"
    )
    found = {name: found[name] for name in kept}
    assert [one.get("request") for one in kept.values()] == [one.get("request") for one in found.values()]


def text(every: dict[str, Any]) -> str:
    """The file: each route, then its request and its answers in a line each."""
    routes = []
    for name, one in every.items():
        parts = (f"{json.dumps(part)}: {json.dumps(shown, ensure_ascii=False)}" for part, shown in one.items())
        routes.append(f"{json.dumps(name)}: {{\n " + ",\n ".join(parts) + "}")
    return "{\n" + ",\n".join(routes) + "\n}\n"


def page_of(name: str) -> str:
    path = name.split(" ")[1]
    return next(page for start, page in _PAGES if path.startswith(start))


def route(path: str) -> str:
    """The path as the description has it: of those that fit, the one with the most words of its own."""
    fit = [name for name in document()["paths"] if _pattern(name).fullmatch(path)]
    return min(fit, key=lambda name: name.count("{"), default=path)


@cache
def _pattern(name: str) -> re.Pattern[str]:
    return re.compile(re.sub(r"\\{[^/]+\\}", "[^/]+", re.escape(name)).replace("by\\-key/[^/]+", "by\\-key/.+"))


def _of(ran: Iterable[Ran]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for call in _calls(ran):
        one = found.setdefault(f"{call.method} {route(call.path)}", {})
        if call.status < 300 and call.body is not None:
            one.setdefault("request", call.body)
        if call.answer is not None:
            shown = _short(_without_secret(call.answer))
            one.setdefault("answers", {}).setdefault(str(call.status), shown)
    return {name: one for name, one in found.items() if one}


def _calls(ran: Iterable[Ran]) -> Iterator[Call]:
    """The last of each step first: the others only lead to it."""
    steps = list(ran)
    for one in steps:
        yield one.calls[-1]
    for one in steps:
        yield from one.calls[:-1]


def _without_secret(answer: Any) -> Any:
    if isinstance(answer, dict) and "secret" in answer:
        return {**answer, "secret": "hf_" + "x" * 43}
    if isinstance(answer, dict) and str(answer.get("token")).startswith("eyJ"):  # of a user; those of leases are none
        return {**answer, "token": "eyJhbGciOiJIUzI1NiJ9.e30.x"}
    return answer


def _short(answer: Any) -> Any:
    """Two of what a server has many of, so that the example can be read."""
    if isinstance(answer, dict):
        for name in {"metrics", "tables", "holders"} & answer.keys():
            many = answer[name]
            answer[name] = dict(list(many.items())[:2]) if isinstance(many, dict) else many[:2]
        if "truncated" in answer:
            for topic in answer["topics"]:
                topic["minutes"] = {name: minutes[-2:] for name, minutes in topic["minutes"].items()}
        for metric in answer.get("metrics", {}).values():
            metric["samples"] = metric["samples"][:1]
    return answer


def _shape(value: Any) -> Any:
    """A value's structure: its keys, and its types; of a list, those of its entries."""
    if isinstance(value, dict):
        if value and all(key.isdigit() and len(key) < 3 for key in value):  # by seq
            return {"seq": [_shape(one) for one in value.values()]}
        if "holders" in value or "metrics" in value:  # what else goes on there is no example's matter
            return sorted(value)
        return {key: _shape(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_shape(one) for one in value]
    return "number" if isinstance(value, float) else type(value).__name__
