"""A user's events over a WebSocket, from the service as it runs: with one server process, and with two."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from app.serve.sockets import MAX_MESSAGE_BYTES
from tests.launch import Service, services
from tests.processes import until
from tests.test_workers import Client, holders

NewDatabase = Callable[[], Awaitable[str]]

KEY = "a-key-of-the-tests"
PATIENCE = 15.0


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("sockets")


@pytest.fixture(scope="module", params=["1", "2"], ids=["one worker", "two workers"])
async def service(folder: Path, new_database: NewDatabase, request: pytest.FixtureRequest) -> AsyncIterator[Service]:
    settings = {"LOG_LEVEL": "debug", "WRITE_SECONDS": "1", "MAX_CONNECTIONS": "50"}
    with services(folder) as start:
        yield start(WORKERS=request.param, API_KEYS=KEY, DATABASE_URL=await new_database(), **settings)


@pytest.fixture(scope="module")
def url(service: Service) -> str:
    return service.up()


@pytest.fixture
def root(service: Service, url: str) -> Iterator[Client]:
    with closing(Client(service, url, key=KEY)) as client:
        yield client


def token(root: Client, user: str, ttl_ms: int = 60_000) -> str:
    made: str = root.call("POST", f"/v0/users/{user}/token", {"ttl_ms": ttl_ms})["token"]
    return made


def opened(url: str, user: str, shown: str = "", **options: Any) -> ClientConnection:
    query = f"?token={shown}" if shown else ""
    address = url.replace("http://", "ws://")
    stream: ClientConnection = connect(f"{address}/v0/users/{user}/events{query}", open_timeout=PATIENCE, **options)
    return stream


def status(url: str, user: str, shown: str = "", **options: Any) -> int:
    """That of a refusal."""
    with pytest.raises(InvalidStatus) as caught, opened(url, user, shown, **options):
        pass
    body = json.loads(caught.value.response.body)
    assert body.keys() == {"error"}
    return caught.value.response.status_code


def heard(stream: ClientConnection) -> Any:
    return json.loads(stream.recv(timeout=PATIENCE))


def ends_with(stream: ClientConnection) -> int | None:
    """The code of its end."""
    try:
        while True:
            stream.recv(timeout=PATIENCE)
    except ConnectionClosed as end:
        return None if end.rcvd is None else end.rcvd.code


def test_each_event_is_a_message(url: str, root: Client) -> None:
    with opened(url, "ada", token(root, "ada")) as stream:
        for n in range(3):
            new = root.call("POST", "/v0/users/ada/events", {"event": "packing", "data": {"n": n, "é": "\u2028"}})
            assert heard(stream) == {"id": new["id"], "event": "packing", "data": {"n": n, "é": "\u2028"}}
    last = new["id"]
    root.call("POST", "/v0/users/ada/events", {"event": "shipped"})
    for after, frames in ((last, ["shipped"]), (0, ["packing"] * 3 + ["shipped"]), (2**62, ["missed"])):
        with opened(url, "ada", f"{token(root, 'ada')}&last_event_id={after}") as stream:
            assert [heard(stream)["event"] for _ in frames] == frames


def test_a_token_may_be_shown_as_bearer(url: str, root: Client) -> None:
    headers = {"authorization": f"Bearer {token(root, 'bea')}"}
    with opened(url, "bea", additional_headers=headers) as stream:
        root.call("POST", "/v0/users/bea/events", {"event": "a"})
        assert heard(stream)["event"] == "a"


def test_the_rules_are_those_of_the_other_stream(url: str, root: Client) -> None:
    good = token(root, "eve")
    assert status(url, "eve") == status(url, "eve", "junk") == status(url, "eve", KEY) == 401
    assert status(url, "bob", good) == 403
    assert status(url, "eve", f"{good}&last_event_id=x") == status(url, "eve", f"{good}&more=1") == 400
    # A page of another site that has the token may use it; cookies are not looked at.
    with opened(url, "eve", good, origin="https://shop.example"):
        pass


def test_it_ends_with_the_token(url: str, root: Client) -> None:
    with opened(url, "eve", token(root, "eve", 1_000)) as stream:
        ending = heard(stream)
        assert (ending["event"], ending["data"]["code"]) == ("error", 401)
        assert ends_with(stream) == 1008


def test_what_a_client_sends_is_bounded_and_dropped(url: str, root: Client) -> None:
    with opened(url, "max", token(root, "max")) as stream:
        for _ in range(100):
            stream.send("x" * MAX_MESSAGE_BYTES)
        stream.ping().wait(PATIENCE)
        root.call("POST", "/v0/users/max/events", {"event": "here"})
        assert heard(stream)["event"] == "here"
        stream.send("x" * (MAX_MESSAGE_BYTES + 1))
        assert ends_with(stream) == 1009


def test_nothing_is_compressed(url: str, root: Client) -> None:
    with opened(url, "zip", token(root, "zip")) as stream:
        assert stream.protocol.extensions == []


@pytest.mark.slow
def test_a_reader_that_takes_nothing_is_cut_off(service: Service, url: str, root: Client) -> None:
    """Events fill what lies between the two, and nothing is read."""
    shown = token(root, "idle")
    host, port = url.removeprefix("http://").split(":")
    with socket.socket() as idle:
        idle.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        idle.connect((host, int(port)))
        idle.sendall(upgrade(f"/v0/users/idle/events?token={shown}"))
        assert idle.recv(12) == b"HTTP/1.1 101"
        mine = idle.getsockname()[1]
        data = "x" * 60_000

        def is_cut_off() -> bool:
            root.call("POST", "/v0/users/idle/events", {"event": "large", "data": data})
            return mine not in clients_of(service)

        until(is_cut_off)


def upgrade(target: str, method: str = "GET") -> bytes:
    fields = (
        f"{method} {target} HTTP/1.1",
        "host: localhost",
        "connection: upgrade",
        "upgrade: websocket",
        "sec-websocket-version: 13",
        "sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==",
    )
    return "\r\n".join((*fields, "", "")).encode()


def clients_of(service: Service) -> set[int]:
    return set(holders(service))


@pytest.mark.parametrize("target", ["/v0/topics", "/healthz", "/v0/users/ada/token", "/v0/users/a/b/events"])
def test_elsewhere_an_upgrade_is_answered_as_without_one(url: str, target: str) -> None:
    host, port = url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), PATIENCE) as raw:
        raw.sendall(upgrade(target))
        answer = raw.recv(4_096)
        assert answer.startswith((b"HTTP/1.1 200", b"HTTP/1.1 401", b"HTTP/1.1 404", b"HTTP/1.1 405")), answer


def test_its_connection_is_counted_and_let_go(service: Service, url: str, root: Client) -> None:
    """The door counts what each worker holds: after more of them than may be open at once, others still come in."""
    shown = token(root, "many")
    for _ in range(4):
        with ExitStack() as streams:
            for _ in range(15):
                streams.enter_context(opened(url, "many", shown))
    assert Client(service, url, key=KEY).call("GET", "/v0/topics")["topics"] == []


def test_no_token_is_in_the_log(service: Service, url: str, root: Client) -> None:
    shown = token(root, "log")
    with opened(url, "log", shown):
        pass
    assert status(url, "other", shown) == 403
    assert shown not in service.words
    assert "Traceback" not in service.words


async def test_a_stop_ends_it_in_order(folder: Path, new_database: NewDatabase) -> None:
    """A server that is open to this machine: pages of other sites are refused, since browsers let them try."""
    with services(folder) as start:
        service = start(INGEST_ORIGINS="https://shop.example", DATABASE_URL=await new_database())
        url = service.up()
        assert status(url, "ada", origin="https://evil.example") == 403
        assert status(url, "ada", additional_headers={"sec-fetch-site": "cross-site"}, origin="null") == 403
        with opened(url, "ada", origin="https://shop.example"), opened(url, "ada", origin=url):
            pass
        with opened(url, "ada") as stream:
            began = time.monotonic()
            service.process.terminate()
            assert heard(stream)["data"]["error"] == "shutting_down"
            assert ends_with(stream) == 1012
        assert service.process.wait(30) == 0
        assert time.monotonic() - began < 8
