"""What one worker changes is known to the others at once, without Redis."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.launch import Serve, Service, services
from tests.processes import until
from tests.test_workers import Client, connect, slots


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    """Starts services of this test, and ends those that still run."""
    with services(tmp_path) as start:
        yield start


def two_workers(service: Service, url: str, key: str = "") -> tuple[Client, Client]:
    """A connection to each of them."""
    one, two = connect(service, url, 2, key)
    assert one.worker != two.worker
    return one, two


def spread(changer: Client, reader: Client, topic: str, lease_ms: int) -> float:
    """Seconds from the answer of a change until it is what another worker works by."""
    path = f"/v0/topics/{topic}"
    assert reader.call("GET", path)["config"]["lease_ms"] != lease_ms
    changer.call("PUT", path, {"type": "queue", "lease_ms": lease_ms})
    began = time.monotonic()
    until(lambda: reader.call("GET", path)["config"]["lease_ms"] == lease_ms)
    return time.monotonic() - began


@pytest.mark.alone
def test_a_topics_settings_are_known_to_another_worker_at_once(serve: Serve) -> None:
    service = serve(WORKERS="2")
    url = service.up()
    one, two = two_workers(service, url)
    one.call("PUT", "/v0/topics/t", {"type": "queue"})
    assert min(spread(one, two, "t", 1000 + n) for n in range(3)) < 0.1
    # One that was killed and has come again hears, and is heard.
    before = slots(service)
    killed = two.worker
    os.kill(killed, signal.SIGKILL)
    until(lambda: (now := slots(service)).keys() == before.keys() and killed not in now.values())

    def again() -> Client | None:
        client = Client(service, url)
        client.call("GET", "/healthz")
        return client if client.worker != one.worker else None

    anew = until(again)
    assert anew is not None
    assert min(spread(one, anew, "t", 2000 + n) for n in range(3)) < 0.1
    assert min(spread(anew, one, "t", 3000 + n) for n in range(3)) < 0.1
    assert service.stop()[0] == 0


@pytest.mark.alone
@pytest.mark.slow
def test_a_worker_that_hung_knows_what_it_missed(serve: Serve) -> None:
    service = serve(WORKERS="2")
    one, two = two_workers(service, service.up())
    names = [f"t{n}" for n in range(5)]
    for name in names:
        one.call("PUT", f"/v0/topics/{name}", {"type": "queue", "lease_ms": 1000})
        assert two.call("GET", f"/v0/topics/{name}")["config"]["lease_ms"] == 1000
    hanging = two.worker
    os.kill(hanging, signal.SIGSTOP)
    for name in names:
        for lease_ms in range(2000, 2010):  # more hints than the system keeps for it
            one.call("PUT", f"/v0/topics/{name}", {"type": "queue", "lease_ms": lease_ms})
            time.sleep(0.025)  # they would go out together
    os.kill(hanging, signal.SIGCONT)

    def known() -> bool:
        return {two.call("GET", f"/v0/topics/{name}")["config"]["lease_ms"] for name in names} == {2009}

    until(known, 2)
    assert service.stop()[0] == 0


@pytest.mark.alone
def test_a_key_that_one_worker_revokes_is_good_at_no_other(serve: Serve) -> None:
    service = serve(WORKERS="2", API_KEYS="root")
    url = service.up()
    one, _ = two_workers(service, url, "root")
    made = one.call("POST", "/v0/keys", {"name": "k", "scopes": ["read"]})
    holders = connect(service, url, 2, made["secret"])
    [elsewhere] = [client for client in holders if client.worker != one.worker]
    assert elsewhere.status("/v0/topics") == 200
    one.call("DELETE", f"/v0/keys/{made['id']}")
    began = time.monotonic()
    until(lambda: elsewhere.status("/v0/topics") == 401)
    assert time.monotonic() - began < 1
    assert service.stop()[0] == 0
