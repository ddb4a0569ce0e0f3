"""Several server processes behind one port: how connections are shared, what a death costs, and the stop."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import signal
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import asyncpg
import psutil  # type: ignore[import-untyped]
import pytest

from app.serve.worker import SLOT
from tests.launch import Serve, Service, call, services
from tests.processes import lives, until
from tests.topics.test_bus import Redis


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Shared by the tests of this file: the cluster is made once."""
    return tmp_path_factory.mktemp("workers")


@pytest.fixture
def serve(folder: Path) -> Iterator[Serve]:
    """Starts services, and ends those that still run."""
    with services(folder) as start:
        yield start


class Client:
    """One connection that is kept, and which worker has it."""

    def __init__(self, service: Service, url: str, *, patience: float = 15.0, key: str = "") -> None:
        self._service = service
        self._headers = {"content-type": "application/json"} | ({"authorization": f"Bearer {key}"} if key else {})
        self._connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=patience)
        self._connection.connect()
        self.port: int = self._connection.sock.getsockname()[1]

    def send(self, method: str, path: str, body: object = None) -> None:
        text = None if body is None else json.dumps(body)
        self._connection.request(method, path, text, self._headers)

    def answer(self) -> Any:
        answer = self._connection.getresponse()
        body = answer.read()
        assert answer.status < 300, body
        return json.loads(body)

    def status(self, path: str) -> int:
        """That of a GET."""
        self.send("GET", path)
        answer = self._connection.getresponse()
        answer.read()
        return answer.status

    def call(self, method: str, path: str, body: object = None) -> Any:
        self.send(method, path, body)
        return self.answer()

    @property
    def worker(self) -> int:
        """The process that has it."""
        return holders(self._service)[self.port]

    def stream(self, path: str) -> http.client.HTTPResponse:
        """An answer that has begun. Its read() raises when the connection ends before the answer does."""
        self.send("GET", path)
        answer = self._connection.getresponse()
        assert answer.status == 200
        return answer

    def close(self) -> None:
        self._connection.close()


def holders(service: Service) -> dict[int, int]:
    """The port of each client with a connection → the worker's process that has it."""
    return {
        one.raddr[1]: pid
        for pid in service.servers()
        for one in psutil.Process(pid).net_connections("tcp")
        if one.raddr and one.status == psutil.CONN_ESTABLISHED
    }


def connect(service: Service, url: str, count: int, key: str = "") -> list[Client]:
    """So many connections, each of them answered once."""
    clients = [Client(service, url, key=key) for _ in range(count)]
    for client in clients:
        assert client.call("GET", "/healthz")["status"] == "ok"
    return clients


def slots(service: Service) -> dict[int, int]:
    """The process in each slot."""
    return {int(psutil.Process(pid).environ()[SLOT]): pid for pid in service.servers()}


@pytest.mark.slow
def test_connections_are_spread_evenly(serve: Serve) -> None:
    service = serve(WORKERS="4")
    url = service.up()
    assert sorted(slots(service)) == [0, 1, 2, 3]
    with ExitStack() as stack:
        clients = [stack.enter_context(closing(client)) for client in connect(service, url, 64)]
        held = holders(service)
        shares = Counter(held[client.port] for client in clients)
        assert len(shares) == 4
        assert max(shares.values()) - min(shares.values()) <= 2, shares
        # What ends makes room where it was.
        [(emptied, _)] = shares.most_common(1)
        for client in clients:
            if held[client.port] == emptied:
                client.close()
        until(lambda: not {client.port for client in clients if held[client.port] == emptied} & set(holders(service)))
        again = [stack.enter_context(closing(client)) for client in connect(service, url, 8)]
        held = holders(service)
        assert {held[client.port] for client in again} == {emptied}
    assert service.stop()[0] == 0


@pytest.mark.alone
def test_one_of_three_is_killed_and_the_others_go_on(serve: Serve) -> None:
    service = serve(WORKERS="3")
    url = service.up()
    before = slots(service)
    call(f"{url}/v0/topics/traffic", "PUT", {"type": "queue", "durable": True})
    clients = connect(service, url, 6)
    held = holders(service)
    killed = before[1]
    survivors = [client for client in clients if held[client.port] != killed]
    assert len(survivors) == 4
    enqueued = 0

    def record() -> dict[str, object]:
        nonlocal enqueued
        enqueued += 1
        return {"records": [{"data": {"n": enqueued}}]}

    def goes_on() -> int | None:
        """Who served a new connection, if it was none of those that were there."""
        for client in survivors:
            client.call("POST", "/v0/topics/traffic", record())
        with closing(Client(service, url, patience=5)) as new:
            new.call("POST", "/v0/topics/traffic", record())
            return None if new.worker in before.values() else new.worker

    os.kill(killed, signal.SIGKILL)
    assert goes_on() is None, "others serve while it is away"
    came_back = until(goes_on)
    assert slots(service) == before | {1: came_back}
    assert call(f"{url}/v0/topics/traffic")["queue"]["ready"] == enqueued
    assert "Worker 1 was killed by SIGKILL. Restarting it" in service.err.read_text()
    assert service.stop()[0] == 0


@pytest.mark.alone
def test_a_worker_that_hangs_is_given_no_more_and_its_death_frees_what_it_had_not_taken(serve: Serve) -> None:
    service = serve(WORKERS="2")
    url = service.up()
    hanging = slots(service)[0]
    os.kill(hanging, signal.SIGSTOP)
    clients = [Client(service, url) for _ in range(4)]  # it is sent two of them before anyone can know
    for client in clients:
        client.send("GET", "/healthz")
    time.sleep(0.6)  # the time after which a worker counts as stuck
    for client in connect(service, url, 10):
        client.close()
    os.kill(hanging, signal.SIGKILL)
    for client in clients:
        assert client.answer()["status"] == "ok"
    assert service.stop()[0] == 0


@pytest.mark.alone
def test_a_stop_sends_away_who_waits_on_any_worker(serve: Serve) -> None:
    service = serve(WORKERS="3")
    url = service.up()
    postgres, servers = service.postgres(), service.servers()
    assert postgres is not None
    call(f"{url}/v0/topics/idle", "PUT", {"type": "queue"})
    clients = connect(service, url, 6)
    held = holders(service)
    streams, claims = clients[:3], clients[3:]
    assert {held[client.port] for client in streams} == {held[client.port] for client in claims} == set(servers)
    open_streams = [client.stream("/v0/topics/idle/work?node=n2") for client in streams]
    for client in claims:
        client.send("POST", "/v0/topics/idle/claim", {"node": "n1", "wait_ms": 20000})
    # A request that comes after them on each worker has been answered: they have been read.
    for client in connect(service, url, 3):
        client.close()
    with ThreadPoolExecutor(3) as threads:
        answers = list(threads.map(lambda client: threads.submit(client.answer), claims))
        code, seconds = service.stop()
        for answer in answers:
            assert answer.result()["claimed"] == []
    for stream in open_streams:
        stream.read()
    assert code == 0
    assert seconds < 5
    assert not any(lives(pid) for pid in [postgres, *servers])
    assert "killed" not in service.err.read_text()


def waited(service: Service, url: str, topic: str) -> float:
    """Seconds from an enqueue at one worker to its job's arrival at a claim that waits at another."""
    call(f"{url}/v0/topics/{topic}", "PUT", {"type": "queue"})
    taker, giver = connect(service, url, 2)
    assert taker.worker != giver.worker
    taker.send("POST", f"/v0/topics/{topic}/claim", {"node": "n1", "wait_ms": 10000})
    time.sleep(0.3)  # it has looked for itself, and waits
    began = time.monotonic()
    giver.call("POST", f"/v0/topics/{topic}", {"records": [{"data": 1}]})
    [job] = taker.answer()["claimed"]
    assert job["data"] == 1
    return time.monotonic() - began


@pytest.mark.alone
def test_work_that_one_worker_takes_in_wakes_a_claim_that_waits_at_another(serve: Serve) -> None:
    service = serve(WORKERS="2")
    url = service.up()
    assert min(waited(service, url, f"told-{n}") for n in range(3)) < 0.1  # the poll alone looks twice a second
    assert service.stop()[0] == 0


@pytest.mark.alone
@pytest.mark.slow
def test_with_redis_it_is_woken_at_once(serve: Serve) -> None:
    redis = Redis()
    redis.start()
    try:
        service = serve(WORKERS="2", REDIS_URL=redis.url)
        url = service.up()
        assert min(waited(service, url, f"hinted-{n}") for n in range(3)) < 0.1
        assert service.stop()[0] == 0
    finally:
        redis.kill()


@pytest.mark.slow
def test_the_embedded_postgresql_has_room_for_all_workers(serve: Serve, tmp_path: Path) -> None:
    service = serve(WORKERS="2", HOT_CONNECTIONS="100")
    service.up()
    data = next(service.folder.glob("pg*.port"))
    url = (
        f"postgresql://holdfast:{data.with_suffix('.password').read_text()}@127.0.0.1:{int(data.read_text())}/holdfast"
    )

    async def most() -> int:
        connection = await asyncpg.connect(url)
        try:
            return int(await connection.fetchval("SHOW max_connections"))
        finally:
            connection.terminate()

    assert asyncio.run(most()) == 2 * (100 + 100 + 4) + 60
    # A second service on the same server, as a PostgreSQL of its own would be: with the figures.
    second = serve(folder=tmp_path, DATABASE_URL=url, WORKERS="3", HOT_CONNECTIONS="100")
    second.up()
    [line] = [line for line in second.err.read_text().splitlines() if "max_connections" in line]
    assert "allows 465 connections (max_connections 468 " in line
    assert "HOLDFAST_WORKERS=3 may open 612" in line
    assert "max_connections" not in service.err.read_text()


def test_each_line_of_the_log_says_which_worker_speaks(serve: Serve) -> None:
    service = serve("--workers", "2", LOG_LEVEL="debug")
    service.up()
    until(lambda: all(f" [worker {slot}] " in service.err.read_text() for slot in (0, 1)))


@pytest.mark.parametrize("workers", ["0", "65", "many"])
def test_a_number_of_workers_that_can_not_be(serve: Serve, workers: str) -> None:
    code, line = serve("--workers", workers).refused()
    assert code == 2
    assert line.startswith("holdfast: HOLDFAST_WORKERS: ")
