"""How deliveries are sent: until they are taken, to nothing private, and without believing answers."""

from __future__ import annotations

import asyncio
import ipaddress
import re
import socket
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from app.features.webhooks import http as client
from app.features.webhooks import sender
from app.features.webhooks.http import AllowedTargets, BlockedError, addresses_of
from app.features.webhooks.sender import Places
from tests.api.dialect import Topic, accepted, eventually
from tests.api.keyring import Services
from tests.api.process import Process
from tests.webhooks.conftest import complete_next
from tests.webhooks.receiver import OK, SECRET, Receiver

if TYPE_CHECKING:
    from tests.conftest import Running

DELIVERIES = "holdfast.webhooks"


async def ended(services: Services, url: str, state: str = "failed") -> str:
    """The error of the only delivery to this URL, once it is in this state with one."""
    query = """
        SELECT last_error FROM holdfast.jobs
        WHERE topic = 'holdfast.webhooks' AND state::text = $2 AND last_error IS NOT NULL
          AND convert_from(payload, 'UTF8')::json->>'url' = $1
    """
    [row] = await eventually(lambda: services.sql(query, url, state))
    error: str = row["last_error"]
    return error


async def complete(queue: Topic, url: str) -> None:
    """A job that this URL is told of."""
    await queue.append({"data": 1, "webhook": url})
    await complete_next(queue)


async def test_one_that_is_not_taken_is_sent_again_as_it_was(queue: Topic, receiver: Receiver) -> None:
    receiver.answers = [
        b"HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:%d/elsewhere\r\n\r\n" % receiver.port,
        b"no HTTP\r\n\r\n",
        OK,
    ]
    await complete(queue, receiver.url())
    told = await receiver.get(3)
    assert {one.path for one in told} == {"/hook"}, "no redirect is followed"
    assert len({one.headers["webhook-id"] for one in told}) == 1
    assert len({one.content for one in told}) == 1
    times = [int(one.headers["webhook-timestamp"]) for one in told]
    assert times == sorted(times)
    assert times[-1] > times[0], "it waited between"
    metrics = (await queue.http.get("/metrics")).text
    for outcome in ("refused", "unreachable"):
        [count] = re.findall(rf'^holdfast_webhooks_total{{outcome="{outcome}"}} (\S+)$', metrics, re.MULTILINE)
        assert float(count) >= 1


async def test_one_for_a_receiver_that_is_down_arrives_once_it_is_up(
    services: Services, queue: Topic, receiver: Receiver
) -> None:
    await receiver.down()
    await complete(queue, receiver.url())
    assert "ConnectionRefusedError" in await ended(services, receiver.url(), "scheduled")
    await receiver.up()
    [told] = await receiver.get()
    assert told.body["event"] == "completed"


async def test_a_receiver_that_is_gone_is_told_no_more(services: Services, queue: Topic, receiver: Receiver) -> None:
    receiver.answers = [b"HTTP/1.1 410 Gone\r\n\r\n"]
    await complete(queue, receiver.url())
    assert (await ended(services, receiver.url())).startswith("HTTP 410")
    assert len(receiver.requests) == 1


async def test_a_huge_answer_is_not_read(queue: Topic, receiver: Receiver) -> None:
    receiver.answers = [b"HTTP/1.1 200 OK\r\ncontent-length: 100000000\r\n\r\n" + b"x" * 1_000_000]
    await complete(queue, receiver.url())
    await receiver.get()

    async def taken() -> bool:
        state = accepted(await queue.http.get(f"/v0/topics/{DELIVERIES}"))
        return (state["queue"]["ready"], state["queue"]["in_flight"]) == (0, 0)

    await eventually(taken)
    assert len(receiver.requests) == 1


async def test_a_head_without_end_and_silence_are_given_up(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    allowed = AllowedTargets(frozenset({"127.0.0.1"}))
    receiver.answers = [b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 100_000]
    with pytest.raises(client.AnswerError):
        await client.post(receiver.url(), {}, b"{}", allowed)
    receiver.hold = True
    monkeypatch.setattr(client, "TIMEOUT_SECONDS", 0.2)
    with pytest.raises(TimeoutError):
        await client.post(receiver.url(), {}, b"{}", allowed)


class Names:
    """A resolver: what it answers for a name, by turns; addresses are themselves."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._real = socket.getaddrinfo
        self.answers: dict[str, list[list[str]]] = {}
        self.asked: list[str] = []
        monkeypatch.setattr(socket, "getaddrinfo", self._resolve)

    def _resolve(self, host: str, port: int, *args: Any, **options: Any) -> Any:
        if host not in self.answers:
            return self._real(host, port, *args, **options)
        self.asked.append(host)
        answers = self.answers[host]
        found = answers.pop(0) if len(answers) > 1 else answers[0]
        return [entry for one in found for entry in self._real(one, port, *args, **options)]


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> Names:
    return Names(monkeypatch)


async def test_what_may_be_told_is_public_or_allowed_by_the_address_that_counts(names: Names) -> None:
    """tests/security/test_ssrf.py has what may not, over the service."""
    for host in ("1.1.1.1", "2606:4700:4700::1111", "::ffff:1.1.1.1"):
        assert await addresses_of(host, 80, AllowedTargets()) == [host]
    names.answers["mixed.test"] = [["10.0.0.1", "1.1.1.1", "::1"]]
    assert await addresses_of("mixed.test", 80, AllowedTargets()) == ["1.1.1.1"]
    private = AllowedTargets(networks=(ipaddress.ip_network("10.0.0.0/8"),))
    assert await addresses_of("10.1.2.3", 80, private)
    assert await addresses_of("::ffff:10.1.2.3", 80, private)
    assert await addresses_of("LOCALHOST", 80, AllowedTargets(frozenset({"localhost"})))
    for host in ("192.168.1.1", "localhost", "100.64.0.1", "64:ff9b:1::1", "224.0.0.1", "ff02::1", "255.255.255.255"):
        with pytest.raises(BlockedError):
            await addresses_of(host, 80, private)


async def test_only_who_has_a_certificate_for_the_name_is_told(
    names: Names, receiver: Receiver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificate, key = tmp_path / "certificate", tmp_path / "key"
    made = await asyncio.create_subprocess_exec(
        *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"),
        *("-subj", "/CN=hook.test", "-addext", "subjectAltName=DNS:hook.test", "-days", "2"),
        *("-keyout", str(key), "-out", str(certificate)),
        stderr=asyncio.subprocess.DEVNULL,
    )
    assert await made.wait() == 0
    await receiver.down()
    await receiver.up(certificate, key)

    async def told(host: str) -> int:
        names.answers[host] = [["127.0.0.1"]]
        return await client.post(f"https://{host}:{receiver.port}/hook", {}, b"{}", AllowedTargets(frozenset({host})))

    with pytest.raises(ssl.SSLCertVerificationError, match="self-signed"):
        await told("hook.test")
    trusting = ssl.create_default_context(cafile=str(certificate))
    monkeypatch.setattr(client, "_context", lambda: trusting)
    with pytest.raises(ssl.SSLCertVerificationError, match="mismatch"):
        await told("other.test")
    assert receiver.requests == []
    assert await told("hook.test") == 204


async def test_a_receiver_that_hangs_holds_up_nobody_else(
    services: Services, queue: Topic, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "TIMEOUT_SECONDS", 0.5)
    monkeypatch.setattr(sender, "SLOW_SECONDS", 0.5)
    other = Receiver()
    await other.up()
    receiver.hold = True
    count = sender.AT_ONCE * 3
    await queue.append(*({"data": i, "webhook": receiver.url()} for i in range(count)))
    await queue.append({"data": count, "webhook": other.url()})
    jobs = await queue.claim(max=count + 1)
    await queue.ack("n", [job["$seq"] for job in jobs["claimed"]])
    await other.get()
    untried = """
        SELECT seq FROM holdfast.jobs
        WHERE topic = 'holdfast.webhooks' AND tag = $1 AND state::text = 'scheduled' AND deliveries = 0
          AND visible_at > now() + interval '10 seconds'
    """
    assert await eventually(lambda: services.sql(untried, queue.name)), "others wait, which is no try"
    before = len(receiver.requests)
    await receiver.get(before + 1)
    assert len(receiver.requests) < count
    await other.down()


def test_a_slow_destination_has_few_places_until_it_is_quick_again() -> None:
    room = Places()
    for _ in range(sender.AT_ONCE):
        assert room.take("a")
    assert room.free == 0
    for _ in range(sender.AT_ONCE):
        room.leave("a", sender.SLOW_SECONDS)
    taken = [room.take("a") for _ in range(sender.AT_ONCE)]
    assert taken.count(True) == sender.SLOW_AT_ONCE
    assert room.take("b"), "nobody else's"
    room.leave("a", 0.1)
    assert all(room.take("a") for _ in range(room.free))
    assert room.free == 0


async def test_one_whose_sender_is_cut_off_is_sent_again(queue: Topic, receiver: Receiver) -> None:
    receiver.hold = True
    await complete(queue, receiver.url())
    await receiver.get()
    receiver.hold = False
    await receiver.down()
    await receiver.up()
    first, again = await receiver.get(2)
    assert first.headers["webhook-id"] == again.headers["webhook-id"]
    assert first.content == again.content


async def test_a_service_that_stops_gives_back_what_it_is_about(
    serve: Callable[..., Awaitable[Running]],
    new_database: Callable[[], Awaitable[str]],
    receiver: Receiver,
    topic: str,
) -> None:
    alone = await Services.make(serve, new_database)
    service = await alone.start(webhook_allow="127.0.0.1", webhook_secret=SECRET)
    async with httpx.AsyncClient(base_url=service.url, timeout=35) as http:
        queue = Topic(http, topic)
        await queue.put()
        receiver.hold = True
        await complete(queue, receiver.url())
        await receiver.get()
    await service.stop()
    [left] = await alone.sql(
        "SELECT state::text, deliveries FROM holdfast.jobs WHERE topic = 'holdfast.webhooks' AND visible_at <= now()"
    )
    assert tuple(left) == ("scheduled", 0)


async def test_what_is_no_delivery_stops_no_other(services: Services, queue: Topic, receiver: Receiver) -> None:
    """As an administrator can make it, who changes a job."""
    await receiver.down()
    await complete(queue, receiver.url())
    await ended(services, receiver.url(), "scheduled")
    [odd] = await services.sql(
        """
        UPDATE holdfast.jobs SET payload = '{"url": "http://["}', visible_at = now()
        WHERE topic = 'holdfast.webhooks' AND tag = $1 RETURNING seq
        """,
        queue.name,
    )
    await receiver.up()
    await complete(queue, receiver.url())
    await receiver.get()
    failed = "SELECT 1 FROM holdfast.jobs WHERE topic = 'holdfast.webhooks' AND seq = $1 AND state::text = 'failed'"
    assert await eventually(lambda: services.sql(failed, odd["seq"]))


async def test_what_was_to_be_told_when_the_service_was_killed_is_told_by_the_next(
    new_database: Callable[[], Awaitable[str]], receiver: Receiver, topic: str, tmp_path: Path
) -> None:
    database = await new_database()
    await receiver.down()
    process = Process(database, tmp_path, HOLDFAST_WEBHOOK_ALLOW="127.0.0.1", HOLDFAST_WEBHOOK_SECRET=SECRET)
    try:
        url = await asyncio.to_thread(process.url)
        async with httpx.AsyncClient(base_url=url, timeout=35) as http:
            queue = Topic(http, topic)
            await queue.put(durable=True)
            await complete(queue, receiver.url())
            process.server().kill()
        await receiver.up()
        [told] = await receiver.get()
        assert (told.body["event"], told.body["topic"]) == ("completed", topic)
    finally:
        await asyncio.to_thread(process.stop)
