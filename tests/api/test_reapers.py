"""Reapers over HTTP and by command: one run at a time, in whichever process, and what it moved in every answer."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING

import asyncpg
import httpx
import pytest

from app.main import SWEEPS
from tests.api.dialect import Body, Topic, accepted, eventually, refused
from tests.api.keyring import Services, client
from tests.pgbouncer import environ_through

if TYPE_CHECKING:
    from tests.conftest import Running

ROOT = Path(__file__).parents[2]
BY_ITSELF = {sweep.name for sweep in SWEEPS if sweep.every}
WAITS = "SELECT count(*) FROM pg_stat_activity WHERE $1 = ANY (pg_blocking_pids(pid))"


@pytest.fixture(scope="module")
async def service(services: Services) -> Running:
    """Whose sweeps have had their first turn, so that none comes by itself within the test."""
    service = await services.start()
    async with client(service) as http:

        async def all_ran() -> bool:
            shown = accepted(await http.get("/v0/admin/reapers"))["reapers"]
            return {reaper["name"] for reaper in shown if (reaper["last_run"] or {}).get("finished_at")} >= BY_ITSELF

        await eventually(all_ran, 60)
    return service


@pytest.fixture
async def locker(services: Services) -> AsyncIterator[asyncpg.Connection[asyncpg.Record]]:
    connection = await asyncpg.connect(services.url)
    yield connection
    connection.terminate()


async def outlived(services: Services, topic: str, count: int) -> None:
    async def fact() -> bool:
        query = "SELECT count(*) AS n FROM holdfast.jobs WHERE topic = $1 AND expires_at < clock_timestamp()"
        return bool((await services.sql(query, topic))[0]["n"] == count)

    await eventually(fact)


def reap(url: str, *words: str) -> subprocess.Popen[str]:
    """`python -m app reap` as a process of its own."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
    command = [sys.executable, "-m", "app", "reap", *words]
    return subprocess.Popen(
        command,
        cwd=ROOT,
        env=environ_through(environ | {"HOLDFAST_DATABASE_URL": url, "HOLDFAST_LOG_LEVEL": "error"}),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


async def ran(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, err = await asyncio.to_thread(process.communicate, timeout=120)
    return process.returncode, out, err


async def one(http: httpx.AsyncClient, name: str) -> Body:
    shown = accepted(await http.get("/v0/admin/reapers"))["reapers"]
    return next(reaper for reaper in shown if reaper["name"] == name)


async def test_what_is_expired_and_deleted_is_answered(http: httpx.AsyncClient, services: Services, topic: str) -> None:
    queue = Topic(http, topic)
    await queue.put(ttl_ms=1)
    await queue.add(3)
    await outlived(services, topic, 3)
    expired = await http.post("/api/admin/expiry-reaper/run")
    assert (expired.status_code, expired.json()) == (200, {"expired": 3})
    assert (await http.post("/api/admin/expiry-reaper/run", json={})).json() == {"expired": 0}
    deleted = await http.post("/api/admin/delete-reaper/run")
    assert (deleted.status_code, deleted.json()) == (200, {"deleted": 3})
    assert await services.sql("SELECT 1 FROM holdfast.jobs WHERE topic = $1", topic) == []


async def test_every_reaper_is_shown_and_runs(http: httpx.AsyncClient) -> None:
    for sweep in SWEEPS:
        assert not accepted(await http.post(f"/v0/admin/reapers/{sweep.name}/run"))["running"]
        assert accepted(await http.post(f"/v0/admin/reapers/{sweep.name}/run"))["moved"] == 0, "the first left some"
    shown = accepted(await http.get("/v0/admin/reapers"))["reapers"]
    assert [reaper["name"] for reaper in shown] == [sweep.name for sweep in SWEEPS]
    for reaper in shown:
        assert reaper["last_run"]["finished_at"] >= reaper["last_run"]["started_at"]
        assert (reaper["last_run"]["running"], reaper["last_run"]["error"]) == (False, None)
    assert {reaper["name"]: reaper["every_ms"] for reaper in shown}["expiry"] == 60_000
    assert [reaper["name"] for reaper in shown if reaper["every_ms"] is None] == ["delete"]


async def test_a_run_is_joined_from_another_process_and_by_another_route(
    http: httpx.AsyncClient,
    services: Services,
    topic: str,
    locker: asyncpg.Connection[asyncpg.Record],
) -> None:
    """A command runs it, held up by a lock; the service joins it: no second statement waits."""
    queue = Topic(http, topic)
    await queue.put(ttl_ms=1)
    await queue.add(5)
    await outlived(services, topic, 5)
    locking = locker.transaction()
    await locking.start()
    await locker.execute("LOCK TABLE holdfast.jobs IN ACCESS EXCLUSIVE MODE")
    command = reap(services.url, "--only", "expiry")

    async def waiting() -> int:
        (row,) = await services.sql(WAITS, locker.get_server_pid())
        return int(row["count"])

    await eventually(waiting, 60)
    so_far = await http.post("/v0/admin/reapers/expiry/run", json={"wait_ms": 0})
    assert (so_far.status_code, so_far.json()["moved"], so_far.json()["running"]) == (202, 0, True)
    seed = await http.post("/api/admin/expiry-reaper/run", json={"wait_seconds": 0})
    assert (seed.status_code, seed.json()) == (202, {"expired": 0, "running": True})
    assert (await one(http, "expiry"))["last_run"]["running"]
    joined = asyncio.create_task(http.post("/api/admin/expiry-reaper/run"))
    assert await waiting() == 1
    await locking.rollback()
    assert (await joined).json() == {"expired": 5}
    assert await ran(command) == (0, "expiry: 5\n", "")
    (row,) = await services.sql(
        "SELECT count(*) FROM holdfast.lease_events e JOIN holdfast.topics t ON t.id = e.topic_id "
        "WHERE t.name = $1 AND e.event = 'expired'",
        topic,
    )
    assert row["count"] == 5


async def test_a_schedule_that_is_set_here_is_in_effect_there(http: httpx.AsyncClient, services: Services) -> None:
    path = "/api/admin/delete-reaper/schedule"
    assert (await http.get(path)).json() == {"schedule": "", "active": False}
    put = await http.put(path, json={"schedule": "0 4 * * *"})
    assert (put.status_code, put.json()) == (200, {"schedule": "0 4 * * *", "active": True})
    async with client(await services.start()) as elsewhere:
        assert (await elsewhere.get(path)).json() == {"schedule": "0 4 * * *", "active": True}
        assert (await one(elsewhere, "delete"))["schedule"] == "0 4 * * *"
        assert (await one(elsewhere, "expiry"))["schedule"] is None
        assert (await elsewhere.put(path, json={"schedule": ""})).json() == {"schedule": "", "active": False}
    assert (await http.get(path)).json() == {"schedule": "", "active": False}
    for text in ("every day", "* * * *", "60 * * * *", "0 0 31 2 *", "@hourly"):
        refused(await http.put(path, json={"schedule": text}), 422, "invalid_schedule")


async def test_the_command_names_what_it_did(http: httpx.AsyncClient, services: Services) -> None:
    """With the service beside it, whose runs of the last minute it does not count as its own."""
    code, out, err = await ran(reap(services.url))
    assert (code, err) == (0, "")
    assert [line.partition(":")[0] for line in out.splitlines()] == [s.name for s in SWEEPS if s.every]
    assert re.fullmatch(r"(\w+: \d+\n)+", out)
    code, out, err = await ran(reap(services.url, "--only", "delete", "nobody"))
    assert (code, out) == (2, "")
    assert "nobody" in err


async def test_the_command_says_what_failed_and_does_the_rest(
    services: Services, locker: asyncpg.Connection[asyncpg.Record], service: Running
) -> None:
    locking = locker.transaction()
    await locking.start()
    await locker.execute("LOCK TABLE holdfast.watches IN ACCESS EXCLUSIVE MODE")
    code, out, err = await ran(reap(services.url, "--only", "watches", "expiry"))
    await locking.rollback()
    assert (code, out) == (1, "expiry: 0\n")
    assert "watches: 0 so far\n" in err
    assert "watches: failed: " in err


async def test_the_cronjob_of_kubernetes_marks_and_deletes(
    http: httpx.AsyncClient, services: Services, topic: str, service: Running
) -> None:
    queue = Topic(http, topic)
    await queue.put(ttl_ms=1)
    await queue.add(2)
    await outlived(services, topic, 2)
    await http.post("/api/admin/delete-reaper/run")  # what other tests left
    environ = os.environ | {"HOLDFAST_URL": service.url, "HOLDFAST_KEY": "any"}
    command = ["sh", "-eu", str(ROOT / "deploy/kubernetes/base/reap.sh"), "expiry", "delete"]
    done = await asyncio.to_thread(subprocess.run, command, env=environ, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stderr == '{"expired":2} expiry: 200\n{"deleted":2} delete: 200\n'
    assert await services.sql("SELECT 1 FROM holdfast.jobs WHERE topic = $1", topic) == []
    gone = environ | {"HOLDFAST_URL": "http://127.0.0.1:1"}
    failed = await asyncio.to_thread(subprocess.run, command, env=gone, capture_output=True, text=True, timeout=60)
    assert failed.returncode != 0


async def test_earlier_runs_say_what_they_moved(http: httpx.AsyncClient, services: Services) -> None:
    topic = Topic(http, "earlier")
    await topic.put()
    await topic.append({"data": 1, "ttl_ms": 1})
    await outlived(services, topic.name, 1)
    moved = accepted(await http.post("/v0/admin/reapers/expiry/run", json={"wait_ms": 30_000}))["moved"]
    (last, *_) = accepted(await http.get("/v0/admin/reapers/expiry/runs"))["runs"]
    assert moved > 0
    assert (last["moved"], last["running"], last["error"]) == (moved, False, None)
    assert last["started_at"] <= last["finished_at"]
