"""Lines of the log: their form, what they say of a request, and what they never say."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

import asyncpg
import httpx
import pytest
from starlette.requests import Request
from starlette.responses import Response

from app.base import log
from app.base.keys import Key, Scope
from app.base.metrics import Metrics
from app.http.calls import Service
from app.http.route import Direct
from app.kernel.topics.settings import PATTERN
from app.main import ERRORS
from app.pages.mount import NamedRoute

PAGE = Path(__file__).parents[2] / "docs/operations/monitoring.md"
MARK = "c4n4ry"
HOSTILE = f'x\n2026-01-01T00:00:00.000Z CRITICAL app: forged\r\x1b[2J\u2028\udcff"}}\0 {MARK}'
TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
ExcInfo = tuple[type[BaseException], BaseException, TracebackType | None]


def record(
    message: str, *args: object, name: str = "app.test", error: BaseException | None = None
) -> logging.LogRecord:
    info: ExcInfo | None = None if error is None else (type(error), error, error.__traceback__)
    return logging.LogRecord(name, logging.WARNING, "", 0, message, args, info)


def as_json(line: logging.LogRecord, worker: int | None = None) -> dict[str, Any]:
    text = log.JsonLines(worker).format(line)
    assert text.isascii()
    assert text.isprintable()
    said: dict[str, Any] = json.loads(text)
    assert [name for name in log.FIELDS if name in said] == list(said), "their order is the table's"
    return said


def test_a_line_says_when_how_bad_where_and_what() -> None:
    said = as_json(record("%d of %s", 3, "mail"), worker=1)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", said.pop("time"))
    assert said == {"level": "warning", "logger": "app.test", "message": "3 of mail", "worker": 1}
    text = log.TextLines(1).format(record("%d of %s", 3, "mail"))
    assert re.fullmatch(r"\S+Z WARNING \[worker 1\] app\.test: 3 of mail", text)


def test_nobody_forges_a_line() -> None:
    text = log.TextLines(None).format(record("There is %s", HOSTILE))
    assert text.replace("\udcff", "").isprintable()
    assert as_json(record("There is %s", HOSTILE))["message"].endswith(f"\0 {MARK}")
    error = RuntimeError(HOSTILE)
    lines = log.TextLines(None).format(record("It failed", error=error)).split("\n")
    assert len(lines) > 1
    assert all(line.startswith("  ") for line in lines[1:])


def test_a_line_whose_arguments_do_not_fit_is_one_all_the_same() -> None:
    said = as_json(record("%d jobs", MARK))
    assert "%d jobs" in said["message"]
    assert MARK not in str(said)


def thrown(error: Exception, cause: Exception | None = None) -> Exception:
    try:
        raise error from cause
    except Exception as caught:
        return caught


def server_error(kind: type[asyncpg.PostgresError]) -> asyncpg.PostgresError:
    message = f"duplicate key\nDETAIL: {MARK}" if kind is asyncpg.UniqueViolationError else f"invalid: {MARK}"
    error = kind(message.partition("\n")[0])
    error.detail = f"Failing row contains ({MARK})."
    return error


QUOTING = [
    ValueError(f"invalid literal for int() with base 10: '{MARK}'"),
    KeyError(MARK),
    asyncpg.DataError(f"invalid input for query argument $1: b'{MARK}'"),
    server_error(asyncpg.InvalidTextRepresentationError),
    server_error(asyncpg.UniqueViolationError),
]


@pytest.mark.parametrize("error", QUOTING, ids=lambda error: type(error).__name__)
def test_an_exception_does_not_quote_what_it_choked_on(error: Exception) -> None:
    wrapped = thrown(RuntimeError("it broke"), ExceptionGroup("some", [thrown(error)]))
    for form in (log.JsonLines(None), log.TextLines(None)):
        text = form.format(record("It failed", error=wrapped))
        assert MARK not in text
        assert type(error).__name__ in text
        assert "it broke" in text
        assert "in thrown" in text, "where it was raised"


def test_what_asyncio_says_is_told_without_arguments_and_results() -> None:
    message = f"Exception in callback settle(b'{MARK}') at x.py:1\nhandle: <Handle settle(b'{MARK}')>"
    assert as_json(record(message, name="asyncio"))["message"] == "Exception in callback settle"


def test_a_callers_id_is_taken_and_another_one_made_where_it_is_none() -> None:
    for given in (b"a", b"x" * 128, b"0f-B_9.z", TRACE.encode()):
        assert log.request_id([(b"accept", b"*/*"), (b"x-request-id", given)]) == given
    for given in (b"", b"x" * 129, b"a b", b"a\nb", b"a\n", b'"', b"\xc3\xa4", b"a,b"):
        made = log.request_id([(b"x-request-id", given)])
        assert re.fullmatch(rb"[0-9a-f]{32}", made)
        assert made != log.request_id([])


def test_topics_and_keys_are_called_as_they_are_elsewhere() -> None:
    assert f"^{log.TOPIC_PATTERN}$" == PATTERN
    assert tuple(re.findall(r"^\| `([a-z_]+)` \|", PAGE.read_text(), re.M)) == log.FIELDS


@pytest.fixture
def written() -> Iterator[io.StringIO]:
    """What the service logs as JSON."""
    root, to = logging.getLogger(), io.StringIO()
    handler = logging.StreamHandler(to)
    handler.setFormatter(log.JsonLines(None))
    handler.addFilter(logging.Filter("app"))
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.INFO)
    yield to
    root.removeHandler(handler)
    root.setLevel(level)


def lines(written: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in written.getvalue().splitlines()]


said = logging.getLogger("app.test")
both = asyncio.Event()


async def claims(request: Request) -> Response:
    request.scope[log.KEY] = Key(b"\x13\x37\x99", Scope.READ, ())
    said.info("%s", request.path_params["topic"])
    if request.url.query == "two":
        await both.wait()
    background = asyncio.create_task(beside())
    await background
    return Response(b"[]", headers={"x-known": "1"})


async def beside() -> None:
    said.info("for all")


async def broken(request: Request) -> Response:
    raise ValueError(MARK)


def service(*, access_log: bool = True) -> httpx.AsyncClient:
    routes = [
        Direct("/v0/topics/{topic}/claim", claims),
        Direct("/v0/broken/{id}", broken),
        NamedRoute("/admin/{topic}", claims),
    ]
    app = Service(Metrics(), access_log=access_log, routes=routes)
    app.add_exception_handler(Exception, ERRORS.show)
    app.add_exception_handler(404, ERRORS.show)
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    return httpx.AsyncClient(transport=transport, base_url="http://test")


async def test_a_request_is_told_by_its_id(written: io.StringIO) -> None:
    headers = {"x-request-id": "mine-1", "traceparent": f"00-{TRACE}-{SPAN}-01", "authorization": f"Bearer {MARK}"}
    async with service() as http:
        answer = await http.get(f"/v0/topics/mail/claim?token={MARK}", headers=headers)
    assert (answer.headers["x-request-id"], answer.headers["x-known"]) == ("mine-1", "1")
    first, background, access = lines(written)
    known = {"request_id": "mine-1", "key_id": "environment key 133799", "topic": "mail", "method": "GET"}
    known |= {"route": "/v0/topics/{topic}/claim", "trace_id": TRACE, "span_id": SPAN}
    assert {name: first.get(name) for name in known} == known
    assert "status" not in first
    assert "request_id" not in background, "a task that serves others as well is nobody's"
    assert known.items() <= access.items()
    assert (access["logger"], access["status"]) == ("app.access", 200)
    assert access["duration_ms"] > 0
    assert re.fullmatch(r"GET /v0/topics/\{topic\}/claim: 200 in [\d.]+ ms", access["message"])
    assert MARK not in written.getvalue()


async def test_a_failed_request_is_found_by_what_its_caller_was_told(written: io.StringIO) -> None:
    async with service() as http:
        answer = await http.get(f"/v0/broken/{MARK}", headers={"x-request-id": "a b"})
    named = answer.headers["x-request-id"]
    assert answer.status_code == 500
    assert named in answer.json()["error"]["message"]
    failed, access = lines(written)
    assert (failed["message"], failed["request_id"]) == ("GET /v0/broken/{id} failed", named)
    assert "in broken" in failed["exception"]
    assert (access["request_id"], access["status"], access["code"]) == (named, 500, "internal")
    assert MARK not in written.getvalue()
    await asyncio.sleep(0)
    assert asyncio.current_task() not in log.UNDER_WAY


async def test_paths_are_not_told(written: io.StringIO) -> None:
    """Of one that nothing is at nothing is known; of a page its route is; a topic's name only if it can be one."""
    async with service() as http:
        assert (await http.get(f"/{MARK}")).status_code == 404
        assert (await http.get(f"/admin/%0a{MARK}")).status_code == 200
    unknown, _, _, page = lines(written)
    assert (unknown["status"], unknown.get("route")) == (404, None)
    assert page["route"] == "/admin/{topic}"
    assert "topic" not in page


async def test_requests_at_a_time_are_told_apart(written: io.StringIO) -> None:
    both.clear()

    async def other() -> None:
        await http.get("/v0/topics/b/claim", headers={"x-request-id": "b"})
        both.set()

    async with service() as http:
        one = asyncio.create_task(http.get("/v0/topics/a/claim?two", headers={"x-request-id": "a"}))
        await asyncio.sleep(0)
        await other()
        await one
    told = [(line["topic"], line["request_id"]) for line in lines(written) if "request_id" in line]
    assert sorted(told) == [("a", "a")] * 2 + [("b", "b")] * 2


async def test_nothing_is_said_of_a_request_unless_it_is_asked_for(written: io.StringIO) -> None:
    async with service(access_log=False) as http:
        assert (await http.get("/none")).headers["x-request-id"]
    assert written.getvalue() == ""


def test_the_setting_is_what_the_root_logger_does(monkeypatch: pytest.MonkeyPatch) -> None:
    root, to = logging.getLogger(), io.StringIO()
    before, level = root.handlers[:], root.level
    monkeypatch.setattr(sys, "stderr", to)
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    root.handlers = []
    try:
        log.configure("warning", "json")
        logging.getLogger("uvicorn.error").warning("one")
        log.configure("warning", "text")
        logging.getLogger("uvicorn.error").warning("two")
        said.info("three")
    finally:
        root.handlers = before
        root.setLevel(level)
        logging.captureWarnings(capture=False)
    one, two = to.getvalue().splitlines()
    assert json.loads(one)["logger"] == "uvicorn.error"
    assert two.endswith("WARNING uvicorn.error: two")
