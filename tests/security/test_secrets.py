"""A service with secrets in all that it is told prints none of them: not in its log, its help, its errors, its metrics,
nor in what may be seen of its processes."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import asyncpg
import httpx
import psutil  # type: ignore[import-untyped]
import pytest

from app.base.log import FIELDS
from app.errors import ConfigurationError
from app.settings import SECRETS, Settings
from tests.api.dialect import Topic, eventually
from tests.api.keyring import bearer, make
from tests.api.people import add_user, basic, token_of
from tests.api.raw import raw
from tests.launch import Service, services

ROOT = Path(__file__).parents[2]
MARK = "c4n4ry"  # in every secret, and nowhere else
OF_SETTINGS = {
    "API_KEYS": f"{MARK}-key-of-the-environment",
    "JWT_SECRET": f"{MARK}-signs-tokens-{'x' * 32}",
    "WEBHOOK_SECRET": f"{MARK}-signs-webhooks-{'x' * 32}",
    "REDIS_URL": f"redis://user:{MARK}-of-redis@127.0.0.1:9/0",  # nobody listens there, which is logged
}
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7"
PASSWORD = f"{MARK} password of a user"


@pytest.fixture(scope="module")
async def url(new_database: Callable[[], Awaitable[str]]) -> str:
    return await new_database()


@pytest.fixture(scope="module")
def secrets(url: str) -> tuple[str, ...]:
    """What must not be seen: what all secrets have in them, and the password of the database, if that has one."""
    password = urlsplit(url).password
    return (MARK, password) if password else (MARK,)


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory, url: str) -> Iterator[Service]:
    with services(tmp_path_factory.mktemp("secrets")) as start:
        yield start(DATABASE_URL=url, LOG_LEVEL="debug", LOG_FORMAT="json", ACCESS_LOG="1", **OF_SETTINGS)


@pytest.fixture
async def http(service: Service) -> AsyncIterator[httpx.AsyncClient]:
    address = await asyncio.to_thread(service.up)
    async with httpx.AsyncClient(base_url=address, timeout=35) as http:
        yield http


def shows(text: str, secrets: tuple[str, ...]) -> bool:
    return any(secret in text for secret in secrets)


async def everything_wrong(http: httpx.AsyncClient, url: str) -> list[httpx.Response]:
    """Requests with secrets wherever one can be, good and bad; and a database that goes away under them."""
    root = bearer(OF_SETTINGS["API_KEYS"])
    http.headers.update(root)
    queue = Topic(http, "secrets")
    await queue.put(webhook={"url": "http://127.0.0.1:9/hook", "secret": f"{MARK} of a topic"})
    made = await make(http, "k")
    user = (await add_user(http, is_admin=True, password=PASSWORD))["username"]
    token = await token_of(http, user, PASSWORD)
    answers = []
    for headers in (root, bearer(f"{MARK}-wrong"), basic(user, PASSWORD), basic(user, f"{MARK} wrong"), token):
        headers |= {"cookie": f"holdfast_session={MARK}; other={MARK}", "x-secret": MARK}
        for path in ("/v0/topics", f"/v0/topics?token={MARK}", f"/v0/topics/secrets/work?token={MARK}", "/admin"):
            if "/work" in path and "Bearer" in headers["authorization"] and "wrong" not in headers["authorization"]:
                continue  # a stream that does not end
            answers.append(await http.get(path, headers=headers))
        for body in (b"{", b'{"records": "%b"' % MARK.encode(), b'{"records":[{"data":"%b"}]}' % MARK.encode()):
            kind = {"content-type": "application/json"}
            answers.append(await http.post(f"{queue.path}?x={MARK}", content=body, headers=headers | kind))
    for form in ("multipart/form-data; boundary=b", "application/x-www-form-urlencoded"):
        answers.append(await http.post("/in/secrets", content=f"{MARK}=%".encode(), headers={"content-type": form}))
    job = await queue.take()
    answers.append(await http.post(f"{queue.path}/nack", json={"node": "n", "seqs": [job["$seq"]], "errors": [MARK]}))
    answers.append(await http.post("/api/auth/login", json={"username": f"{MARK}\0", "password": PASSWORD}))
    answers.append(await http.post(f"/v0/keys/{made['id']}/rotate", json={"grace_ms": MARK}))
    async with raw(str(http.base_url)) as one:
        await one.send(f"GET /{MARK} {MARK}\r\nauthorization: {MARK}\r\n\r\n".encode())
        await one.closed()
    killer = await asyncpg.connect(url)
    try:
        for _ in range(3):
            await killer.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
            answers += await asyncio.gather(*(http.get(f"/v0/topics?x={MARK}") for _ in range(5)))
    finally:
        await killer.close()
    return answers


async def test_nothing_that_it_prints_or_answers_has_a_secret(
    service: Service, http: httpx.AsyncClient, url: str, secrets: tuple[str, ...]
) -> None:
    answers = await everything_wrong(http, url)

    async def again() -> bool:
        return (await http.get("/v0/topics")).status_code == 200

    await eventually(again, 30)
    assert any(answer.status_code >= 400 for answer in answers)
    leaks = [
        (answer.request.url.path, answer.text[:300])
        for answer in answers
        if answer.status_code not in {200, 201} and shows(answer.text, secrets)
    ]
    assert leaks == []
    metrics = (await http.get("/metrics")).text
    assert not shows(metrics, secrets)
    assert "holdfast_" in metrics
    assert "Redis" in service.words, "that nobody listens there is said"
    assert "boundary" not in service.words, "whoever sends nonsense writes no lines"
    lines = [line for line in service.words.splitlines() if shows(line, secrets)]
    assert lines == []


def lines(service: Service) -> list[dict[str, Any]]:
    """What it has printed so far, a line under way aside: one JSON object a line, and nothing else."""
    return [json.loads(line) for line in service.words.rpartition("\n")[0].split("\n")]


async def held(http: httpx.AsyncClient, queue: Topic) -> dict[str, Any]:
    """Every verb once in both dialects, with a secret wherever text can be: the job that is held at last."""
    await queue.append(*[{"data": f"{MARK} payload", "meta": {"m": MARK}}] * 3)
    for verb, more in (
        ("extend", {"lease_ms": 60_000}),
        ("nack", {"errors": [f"{MARK} why"]}),
        ("ack", {"results": [MARK]}),
    ):
        job = await queue.take()
        body = {"node": "n", "seqs": [job["$seq"]], "lease_ids": [job["lease_id"]], **more}
        assert (await http.post(f"{queue.path}/{verb}", json=body)).is_success
    kept = await http.post("/api/messages", json={"topic": "mail", "payload": MARK, "metadata": {"b": MARK}})
    assert kept.status_code == 201, kept.text
    dequeued = await http.post("/api/messages/dequeue", json={"topic": "mail", "count": 1})
    [taken] = dequeued.json()["messages"]
    wrong = {"lease_id": MARK, "result": MARK}
    assert (await http.post(f"/api/messages/{kept.json()['id']}/ack", json=wrong)).is_client_error
    return {**job, **taken}


async def test_its_lines_are_json_about_requests_and_nothing_that_they_carry(
    service: Service, http: httpx.AsyncClient, url: str, secrets: tuple[str, ...]
) -> None:
    http.headers.update(bearer(OF_SETTINGS["API_KEYS"]) | {"x-request-id": "verbs-1", "traceparent": f"00-{TRACE}-01"})
    queue = Topic(http, "lines")
    await queue.put()
    job = await held(http, queue)
    for path in (f"/v0/topics/%0a{MARK}%22%7d/jobs", f"/v0/{MARK}", f"/in/lines/{MARK}/%0d%0a{MARK}"):
        answer = await http.post(path, content=b"{", headers={"x-request-id": f'a\x1b"{MARK}'})
        assert re.fullmatch("[0-9a-f]{32}", answer.headers["x-request-id"])
    async with asyncpg.create_pool(url, min_size=1, max_size=1) as pool:
        await pool.execute("ALTER TABLE holdfast.saved_views RENAME TO others")
        try:
            fault = await http.get("/v0/views", headers={"x-request-id": "fault-1", "x-secret": MARK})
        finally:
            await pool.execute("ALTER TABLE holdfast.others RENAME TO saved_views")
    assert (fault.status_code, fault.headers["x-request-id"]) == (500, "fault-1")
    assert "fault-1" in fault.json()["error"]["message"]

    async def written() -> bool:
        return any(line.get("request_id") == "fault-1" and "status" in line for line in lines(service))

    await eventually(written)
    assert {name for line in lines(service) for name in line} <= set(FIELDS)
    for text in (*secrets, job["lease_id"], "Authorization", "Bearer"):
        assert text not in service.words
    mine = [line for line in lines(service) if line.get("request_id") in {"verbs-1", "fault-1"}]
    [claim, *_] = [line for line in mine if line["route"] == "/v0/topics/{topic}/claim"]
    seen = {name: claim[name] for name in ("request_id", "topic", "method", "status", "logger", "trace_id")}
    trace = TRACE.partition("-")[0]
    assert seen == {
        "request_id": "verbs-1",
        "topic": "lines",
        "method": "POST",
        "status": 200,
        "logger": "app.access",
        "trace_id": trace,
    }
    assert claim["key_id"].startswith("environment key ")
    dequeued = [line["topic"] for line in mine if line["route"] == "/api/messages/dequeue"]
    assert dequeued == ["mail"]
    [failed] = [line for line in mine if line["logger"] == "app.http.errors"]
    assert (failed["request_id"], failed["route"]) == ("fault-1", "/v0/views")
    assert "UndefinedTableError" in failed["exception"]


async def test_nobody_sees_one_beside_its_processes_or_in_the_database(
    service: Service, http: httpx.AsyncClient, url: str, secrets: tuple[str, ...]
) -> None:
    """Neither in what they were started with nor in their names, nor in what they have asked."""
    processes = [psutil.Process(service.process.pid), *psutil.Process(service.process.pid).children(recursive=True)]
    assert len(processes) > 1
    seen = [" ".join(process.cmdline()) + process.name() for process in processes]
    assert (await http.get("/healthz")).status_code == 200
    connection = await asyncpg.connect(url)
    rows = await connection.fetch(
        "SELECT application_name || query AS shown FROM pg_stat_activity WHERE datname = current_database()"
    )
    await connection.close()
    assert len(rows) > 1
    assert [line for line in (*seen, *(row["shown"] for row in rows)) if shows(line, secrets)] == []


def environment(database: str) -> dict[str, str]:
    return {f"HOLDFAST_{name}": value for name, value in (OF_SETTINGS | {"DATABASE_URL": database}).items()}


DSN = f"postgresql://u:{MARK}@127.0.0.1:1/x"
WAITS = {"HOLDFAST_START_WAIT_SECONDS": "0.1"}  # and says for what


def test_settings_show_none_in_any_form() -> None:
    settings = Settings.from_env(environment(DSN))
    assert {name.upper() for name in SECRETS} == set(OF_SETTINGS) | {"DATABASE_URL"}
    forms = (repr(settings), str(settings), f"{settings!r:>5}", settings.model_dump_json(), str(settings.model_dump()))
    for text in forms:
        assert MARK not in text
    assert MARK not in "".join(f"{name}={value}" for name, value in settings)


@pytest.mark.parametrize(
    "words",
    [("serve", "--help"), ("keys", "list"), ("serve",), ("nonsense",)],
    ids=" ".join,
)
def test_commands_print_none(words: tuple[str, ...]) -> None:
    """Also of a database that can't be reached."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
    command = [sys.executable, "-m", "app", *words]
    ran = subprocess.run(
        command, cwd=ROOT, env=clean | environment(DSN) | WAITS, capture_output=True, text=True, timeout=60, check=False
    )
    said = ran.stdout + ran.stderr
    assert said
    assert MARK not in said
    assert "Traceback" not in said


def test_what_is_wrong_with_a_setting_is_said_without_it() -> None:
    """Also where a secret stands in the place of something else."""
    for name in (*(name.upper() for name in SECRETS), "PORT", "NONSENSE"):
        for value in (f"{MARK}:fly", f"mysql://u:{MARK}@h", MARK):
            if (name, value) == ("API_KEYS", MARK):
                continue  # which can be a key
            with pytest.raises(ConfigurationError) as refused:
                Settings.from_env({f"HOLDFAST_{name}": value})
            assert MARK not in "".join(traceback.format_exception(refused.value))
