"""Bounds on what comes from outside, at each bound and beyond it, over raw sockets to the service as a process."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Iterator

import psutil  # type: ignore[import-untyped]
import pytest

from app.serve.protocol import MAX_HEADERS, MAX_PIPELINED, MAX_TARGET_BYTES
from tests.api.dialect import eventually
from tests.api.raw import Raw, chunk, chunked, connected, eventually_true, get, post, raw
from tests.launch import Serve, Service, services

KIB, MIB = 1024, 1024 * 1024
KEYS = ",".join(f"k{number}" for number in range(20))
NONE_THERE = (404, "topic_not_found")  # what a request that no bound refuses gets on a topic that nobody made


@pytest.fixture(scope="module")
def serve(tmp_path_factory: pytest.TempPathFactory, database_url: str) -> Iterator[Serve]:
    with services(tmp_path_factory.mktemp("limits")) as start:

        def on_ours(*words: str, **settings: str) -> Service:
            return start(*words, **{"DATABASE_URL": database_url} | settings)

        yield on_ours


@pytest.fixture(scope="module")
def service(serve: Serve) -> Service:
    """With small bounds, and a key for each test."""
    return serve(
        API_KEYS=KEYS,
        MAX_BODY_BYTES=str(MIB),
        MAX_BUFFERED_BYTES=str(2 * MIB),
        MAX_STREAMS="3",
        MAX_STREAMS_PER_KEY="2",
        MAX_REQUESTS_PER_KEY="2",
    )


@pytest.fixture(scope="module")
async def url(service: Service) -> str:
    return await asyncio.to_thread(service.up)


async def refused(client: Raw, *pieces: bytes) -> tuple[int, str, object]:
    """What the request is refused with; the connection is closed then."""
    answer = await client.ask(*pieces)
    assert answer.headers["connection"] == "close"
    assert await client.closed() == b""
    return answer.limit()


async def test_headers_may_be_so_large_and_so_many_and_the_target_so_long(url: str) -> None:
    def headers(size: int, count: int) -> bytes:
        """So many bytes of them, in so many lines."""
        names = [f"x{number:02}" for number in range(count)]
        each, rest = divmod(size - len("host: localhost\r\n"), count)
        sizes = [each + (rest if place == 0 else 0) for place in range(count)]
        return get("/healthz", *(f"{name}: {'v' * (size - 7)}" for name, size in zip(names, sizes, strict=True)))

    def in_pieces(request: bytes) -> list[bytes]:
        return [request[i : i + 1000] for i in range(0, len(request), 1000)]

    lines, target = [f"x{number}: v" for number in range(MAX_HEADERS)], "/healthz?" + "q" * (MAX_TARGET_BYTES - 9)
    large = (431, "headers_too_large", {"limit": "header_bytes", "max": 16 * KIB})
    many = (431, "headers_too_large", {"limit": "headers", "max": MAX_HEADERS})
    long = (414, "uri_too_long", {"limit": "target_bytes", "max": MAX_TARGET_BYTES})
    for fits, beyond, limit in (
        ([headers(16 * KIB, 1)], [headers(16 * KIB + 1, 1)], large),
        (in_pieces(headers(16 * KIB, 90)), in_pieces(headers(16 * KIB + 1, 90)), large),
        ([get("/healthz", *lines[1:])], [get("/healthz", *lines)], many),
        ([get(target)], [get(target + "q")], long),
    ):
        async with raw(url) as client:
            assert (await client.ask(*fits)).status == 200
            assert await refused(client, *beyond) == limit


@pytest.mark.parametrize(
    "start",
    [
        b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nx: ",
        b"GET /",
        b"\r\n" * 1000,
        chunked("/healthz") + chunk(b"b") + b"0\r\nx: ",
    ],
    ids=["header", "target", "empty lines", "trailer"],
)
async def test_one_that_never_ends_is_cut_off(url: str, service: Service, start: bytes) -> None:
    pid = service.server()
    assert pid is not None
    process = psutil.Process(pid)
    before = process.memory_info().rss
    async with raw(url) as client:
        await client.send(start)
        more = b"\r\n" * 32 * KIB if start[:2] == b"\r\n" else b"v" * 64 * KIB
        for _ in range(20 * MIB // len(more)):
            await client.send(more)
            if client.writer.is_closing():
                break
        said = await client.closed()
        # A trailer comes after the answer to what it belongs to.
        assert not said or b"headers_too_large" in said
    assert process.memory_info().rss < before + 8 * MIB


async def test_so_many_requests_may_wait_on_a_connection(url: str) -> None:
    async with raw(url) as client:
        await client.send(get() * (MAX_PIPELINED + 1))
        assert {(await client.answer()).status for _ in range(MAX_PIPELINED + 1)} == {200}
    async with raw(url) as client:
        await client.send(get() * 5_000)
        assert (await client.closed()).count(b"HTTP/1.1 ") <= 1


async def test_what_fails_before_its_route_is_known_is_told_in_its_dialect(url: str) -> None:
    """As far as the target has come by then: each way to be refused, and paths that only look alike."""
    enqueue, large = "/api/messages", f"x: {'v' * 17 * KIB}"
    for request, status, code in [
        (get(enqueue, large), 431, "headers_too_large"),
        (get(f"{enqueue}?{'q' * MAX_TARGET_BYTES}"), 414, "uri_too_long"),
        (get(enqueue, "no colon"), 400, "invalid_request"),
    ]:
        async with raw(url) as client:
            answer = await client.ask(request)
            told = json.loads(answer.body)
            assert (answer.status, told["code"], sorted(told)) == (status, code, ["code", "docs", "error"])
    for request, status, code in [
        (get("/apiary", large), 431, "headers_too_large"),
        (get("/v0/topics/api", large), 431, "headers_too_large"),
        (b"HELO example.org\r\n", 400, "invalid_request"),
    ]:
        async with raw(url) as client:
            assert (await refused(client, request))[:2] == (status, code)


@pytest.mark.slow
async def test_the_bounds_hold_in_each_of_several_workers(serve: Serve) -> None:
    several = serve(WORKERS="2", MAX_HEADER_BYTES="1024", HEADER_SECONDS="0.2")
    there = await asyncio.to_thread(several.up)
    async with raw(there) as one, raw(there) as two, raw(there) as three:
        for client in (one, two):
            assert (await refused(client, get("/healthz", f"x: {'v' * 1024}")))[0] == 431
        assert await three.closed() == b""


# Connections.


async def test_so_many_connections_may_be_open(serve: Serve) -> None:
    small = serve(MAX_CONNECTIONS="5")
    there = await asyncio.to_thread(small.up)
    pid = small.server()
    assert pid is not None
    async with contextlib.AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(raw(there)) for _ in range(5)]
        for client in clients:
            assert (await client.ask(get())).status == 200
        async with raw(there) as one_more:
            answer = await one_more.answer()
            assert answer.limit() == (503, "not_ready", {"limit": "connections", "max": 5})
            assert answer.headers["retry-after"] == "1"
            assert await one_more.closed() == b""
            await eventually_true(lambda: one_more.port not in connected(pid))
        assert (await clients[0].ask(get())).status == 200
        clients[0].writer.close()

        async def let_in() -> bool:
            async with raw(there) as again:
                return (await again.ask(get())).status == 200

        await eventually(let_in)


# Streams and requests of a key.

STREAM = "/v0/topics/limits/work?node=n"
WAIT = json.dumps({"node": "n", "wait_ms": 30_000}).encode()


@pytest.fixture(scope="module", autouse=True)
async def queue(url: str) -> None:
    async with raw(url) as client:
        body = b'{"type":"queue"}'
        put = post("/v0/topics/limits", body, key="k0").replace(b"POST", b"PUT", 1)
        assert (await client.ask(put)).status in {200, 201}


async def holding(stack: contextlib.AsyncExitStack, url: str, request: bytes) -> Raw:
    """A client whose stream is open."""
    client = await stack.enter_async_context(raw(url))
    await client.send(request)
    assert b" 200 " in await client.reader.readuntil(b"\r\n\r\n")
    return client


async def test_so_many_streams_may_be_open(url: str) -> None:
    async with contextlib.AsyncExitStack() as stack:
        mine = [await holding(stack, url, get(STREAM, key="k1")) for _ in range(2)]
        asking = await stack.enter_async_context(raw(url))
        answer = await asking.ask(get(STREAM, key="k1"))
        assert answer.limit() == (429, "throttled", {"limit": "streams_per_key", "max": 2})
        assert answer.headers["retry-after"] == "1"
        await holding(stack, url, get(STREAM, key="k2"))
        answer = await asking.ask(get(STREAM, key="k2"))
        assert answer.limit() == (429, "throttled", {"limit": "streams", "max": 3})
        # Streams count as such, and not as requests of their key.
        assert (await asking.ask(get("/v0/topics/limits", key="k1"))).status == 200
        mine[0].writer.close()

        async def opens() -> bool:
            async with raw(url) as again:
                await again.send(get(STREAM, key="k1"))
                return b" 200 " in await again.reader.readuntil(b"\r\n\r\n")

        await eventually(opens)


async def test_so_many_requests_of_a_key_may_be_under_way(url: str) -> None:
    async with raw(url) as one, raw(url) as two, raw(url) as asking:
        claim = post("/v0/topics/limits/claim", WAIT, key="k3")
        await one.send(claim)
        await two.send(claim)

        async def full() -> bool:
            answer = await asking.ask(get("/v0/topics/limits", key="k3"))
            if answer.status == 200:
                return False
            assert answer.limit() == (429, "throttled", {"limit": "requests_per_key", "max": 2})
            assert answer.headers["retry-after"] == "1"
            return True

        await eventually(full)
        assert (await asking.ask(get("/v0/topics/limits", key="k4"))).status == 200
        assert (await asking.ask(get("/healthz"))).status == 200
        one.writer.close()

        async def free() -> bool:
            return (await asking.ask(get("/v0/topics/limits", key="k3"))).status == 200

        await eventually(free)


async def test_what_fails_or_leaves_gives_its_place_back(url: str) -> None:
    async with raw(url) as client:
        for request in (
            get("/v0/topics/absent", key="k5"),
            post("/v0/topics/limits", b"{", key="k5"),
            post("/v0/topics/limits/claim", b'{"node":""}', key="k5"),
            post("/v0/topics/limits", b"[" * 70_000, key="k5"),
            get("/v0/topics/limits/work?node=", key="k5"),
        ):
            for _ in range(3):
                assert (await client.ask(request)).status in {400, 404}
        for _ in range(5):
            async with raw(url) as leaving:
                await leaving.send(post("/v0/topics/limits", b"half", key="k5", declared=100))

        async def all_back() -> bool:
            # Both places at once: this one, and one that is held meanwhile.
            async with raw(url) as other:
                await other.send(post("/v0/topics/limits", b"half", key="k5", declared=100))
                return (await client.ask(get("/v0/topics/limits", key="k5"))).status == 200

        await eventually(all_back)


# Bytes of bodies.


def large(size: int) -> bytes:
    return b'{"node":"n"%b}' % (b" " * (size - 12))


async def test_so_many_bytes_of_bodies_may_be_held(url: str) -> None:
    path, body = "/v0/topics/limits.absent/claim", large(900 * KIB)
    full = (429, "throttled", {"limit": "buffered_bytes", "max": 2 * MIB})
    async with raw(url) as one, raw(url) as two, raw(url) as asking:
        await one.send(post(path, body[:-1], key="k6", declared=len(body)))
        await two.send(chunked(path, key="k7"), chunk(body))

        async def is_full() -> bool:
            # It sends no body: one that was let in would take what the two are about to.
            async with raw(url) as probe:
                await probe.send(post(path, b"", key="k8", declared=len(body)))
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(0.3):
                        answer = await probe.answer()
                        return answer.limit() == full and answer.headers["retry-after"] == "1"
                return False

        await eventually(is_full)
        async with raw(url) as third:  # no length was declared: refused once it is too much
            answer = await third.ask(chunked(path, key="k9"), *[chunk(body[:100_000])] * 5)
            assert answer.limit() == full
        # What is small goes on, and what fits into what is left.
        assert (await asking.ask(post(path, large(15 * KIB), key="k8"))).limit()[:2] == NONE_THERE
        assert (await asking.ask(post(path, large(200 * KIB), key="k8"))).limit()[:2] == NONE_THERE
        assert (await one.ask(body[-1:])).limit()[:2] == NONE_THERE
        assert (await asking.ask(post(path, body, key="k8"))).limit()[:2] == NONE_THERE
        assert (await two.ask(b"0\r\n\r\n")).limit()[:2] == NONE_THERE


@pytest.mark.slow
async def test_many_large_bodies_at_once_do_not_add_up(serve: Serve) -> None:
    most = 16 * MIB
    small = serve(MAX_BODY_BYTES=str(8 * MIB), MAX_BUFFERED_BYTES=str(most))
    there = await asyncio.to_thread(small.up)
    pid = small.server()
    assert pid is not None
    process = psutil.Process(pid)
    before, peak = process.memory_info().rss, 0
    body = large(8 * MIB)

    async def upload() -> int:
        nonlocal peak
        async with raw(there) as client:
            await client.send(chunked("/v0/topics/limits.absent/claim"))
            for place in range(0, len(body), 256 * KIB):
                await client.send(chunk(body[place : place + 256 * KIB]))
                peak = max(peak, process.memory_info().rss)
                await asyncio.sleep(0)
            return (await client.ask(b"0\r\n\r\n")).status

    answers = [await one for one in asyncio.as_completed([upload() for _ in range(24)])]
    assert set(answers) == {404, 429}
    assert peak < before + 6 * most  # 24 bodies are 192 MiB
    async with raw(there) as client:
        assert (await client.ask(post("/v0/topics/limits.absent/claim", body))).status in {400, 404}


async def unread(slow: Raw, other: Raw, topic: str, key: str) -> None:
    """12 large jobs of which 10 were claimed: an answer that fills what may be held, and that nobody reads yet."""
    job = json.dumps({"records": [{"data": "x" * 900 * KIB}], "config": {"type": "queue"}}).encode()
    for _ in range(12):
        assert (await other.ask(post(topic, job, key=key))).status in {200, 201}
    await slow.send(post(f"{topic}/claim", b'{"node":"n","max":10}', key=key))

    async def is_full() -> bool:
        return (await other.ask(post(f"{topic}/diff", b"{}", key=key))).status == 429

    await eventually(is_full)


async def test_an_answer_that_nobody_reads_counts_until_it_is_read(url: str) -> None:
    path, full = "/v0/topics/unread", (429, "throttled", {"limit": "buffered_bytes", "max": 2 * MIB})
    claim = post(f"{path}/claim", b'{"node":"n","max":10}', key="k11")
    async with raw(url, receive_bytes=64 * KIB) as slow, raw(url) as other:
        await unread(slow, other, path, "k10")
        assert (await other.ask(claim)).limit() == full
        assert (await other.ask(post(f"{path}/diff", b"{}", key="k11"))).limit() == full
        assert (await other.ask(get("/api/messages?topic=unread", key="k11"))).status == 429
        assert (await other.ask(post("/api/messages/dequeue", b'{"topic":"unread"}', key="k11"))).status == 429
        # What is small goes on, and nothing more was claimed.
        held = json.loads((await other.ask(get(path, key="k11"))).body)
        assert (held["queue"]["ready"], held["queue"]["in_flight"]) == (2, 10)
        assert len(json.loads((await slow.answer()).body)["claimed"]) == 10
        assert len(json.loads((await other.ask(claim)).body)["claimed"]) == 2


async def test_a_claim_that_waited_is_given_back_where_an_answer_has_no_room(url: str) -> None:
    path = "/v0/topics/unread.late"
    job = json.dumps({"records": [{"data": "x" * 900 * KIB}], "config": {"type": "queue"}}).encode()
    claim = post(f"{path}/claim", b'{"node":"n","max":10,"wait_ms":20000}', key="k12")
    async with raw(url, receive_bytes=64 * KIB) as slow, raw(url) as other, raw(url) as waiting:
        assert (await other.ask(post(path, job, key="k13"))).status in {200, 201}
        [late] = json.loads((await other.ask(claim)).body)["claimed"]
        await waiting.send(claim)
        await unread(slow, other, "/v0/topics/unread.early", "k13")
        back = json.dumps({"node": "n", "seqs": [late["$seq"]]}).encode()
        assert (await other.ask(post(f"{path}/nack", back, key="k13"))).status == 200
        assert (await waiting.answer()).limit()[1] == "throttled"
        await slow.answer()
        [again] = json.loads((await other.ask(claim)).body)["claimed"]
        assert again["$seq"] == late["$seq"]
