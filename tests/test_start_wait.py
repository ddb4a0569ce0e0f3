"""`serve` beside a database that is not there yet: it waits, and says so; what no wait helps is said at once."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from urllib.error import HTTPError
from urllib.parse import urlsplit, urlunsplit

import pytest

from app.base.db import connect, schema
from app.errors import ConfigurationError
from app.serve.listener import HEAD_BYTES, answer_to
from tests.launch import Serve, Service, call, services
from tests.processes import until


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("waiting")


@pytest.fixture
def serve(folder: Path) -> Iterator[Serve]:
    with services(folder) as start:
        yield start


def away(url: str) -> tuple[int, dict[str, str], str]:
    """What a GET is refused with: status, header fields, body."""
    with pytest.raises(HTTPError) as refused:
        call(url)
    error = refused.value
    return error.code, {name.lower(): value for name, value in error.headers.items()}, error.read().decode()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
        return port


def waits(service: Service) -> bool:
    return "Waiting for PostgreSQL" in service.words


async def test_it_waits_for_a_database_answers_meanwhile_and_goes_on_when_there_is_one(
    serve: Serve, new_database: Callable[[], Awaitable[str]]
) -> None:
    there = urlsplit(await new_database())
    login, _, _ = there.netloc.rpartition("@")
    absent, port = free_port(), free_port()
    service = serve(DATABASE_URL=urlunsplit(there._replace(netloc=f"{login}@127.0.0.1:{absent}")), PORT=str(port))
    await asyncio.to_thread(until, lambda: waits(service))
    base = f"http://127.0.0.1:{port}"
    for path in ("/healthz", "/readyz", "/v0/topics"):
        status, fields, body = await asyncio.to_thread(away, base + path)
        assert (status, fields["retry-after"]) == (503, "1")
        assert json.loads(body)["error"]["code"] == "not_ready"
    assert json.loads((await asyncio.to_thread(away, f"{base}/api/topics"))[2])["code"] == "not_ready"
    assert service.out.read_text() == "", "the greeting says that it runs"

    async def through(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        further, back = await asyncio.open_connection(there.hostname, there.port)
        await asyncio.gather(pour(reader, back), pour(further, writer))

    database = await asyncio.start_server(through, "127.0.0.1", absent)
    try:
        assert await asyncio.to_thread(service.up) == base
        assert (await asyncio.to_thread(call, f"{base}/readyz"))["status"] == "ready"
        assert not there.password or there.password not in service.words
        await asyncio.to_thread(service.stop)
    finally:
        database.close()


async def pour(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    """All that comes, until it ends."""
    with contextlib.suppress(OSError):
        while data := await source.read(65536):
            target.write(data)
    target.close()


def test_a_stop_ends_the_wait_at_once_and_the_wait_ends_by_itself(serve: Serve) -> None:
    nobody = f"postgresql://someone:topsecret@127.0.0.1:{free_port()}/x"
    patient = serve(DATABASE_URL=nobody)
    brief = serve(DATABASE_URL=nobody, START_WAIT_SECONDS="0.1")
    until(lambda: waits(patient))
    code, seconds = patient.stop()
    assert code == 0
    assert seconds < 5
    assert brief.process.wait(30) == 2
    assert "can't be reached: Connection refused (waited 0.1 s: HOLDFAST_START_WAIT_SECONDS)" in brief.words
    assert "topsecret" not in patient.words + brief.words


async def test_what_no_wait_helps_is_said_at_once(new_database: Callable[[], Awaitable[str]]) -> None:
    """A wrong password, and a database that does not exist."""
    url = urlsplit(await new_database())
    host = url.netloc.rpartition("@")[2]
    for wrong, why in (
        (url._replace(netloc=f"holdfast-nobody:wrong@{host}"), "holdfast-nobody"),
        (url._replace(path="/none"), '"none" does not exist'),
    ):
        with pytest.raises(ConfigurationError, match=why) as error:
            await asyncio.wait_for(schema.wait_for_facts(urlunsplit(wrong), 3600), 30)
        assert not isinstance(error.value, connect.Away)


async def test_a_server_that_hangs_up_or_takes_no_more_may_do_so_for_a_while_only() -> None:
    """Those of PostgreSQL's ways to refuse that pass by themselves, as it says them, and others that don't."""

    async def refuse(code: str) -> ConfigurationError:
        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            with contextlib.suppress(OSError, EOFError):
                await reader.read(8)  # asks for TLS
                writer.write(b"N")
                await reader.read(1000)
                fields = b"SFATAL\0VFATAL\0C" + code.encode() + b"\0Mno\0\0"
                writer.write(b"E" + (len(fields) + 4).to_bytes(4, "big") + fields)
            writer.close()

        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        try:
            await schema.facts(f"postgresql://u:p@127.0.0.1:{port}/x", patience=0)
        except ConfigurationError as error:
            return error
        finally:
            server.close()
        raise AssertionError(code)

    passing = {code for code in CODES if isinstance(await refuse(code), connect.Away)}
    assert passing == {"57P03", "57P01", "57P02", "53300", "08006"}


CODES = ("57P03", "57P01", "57P02", "53300", "08006", "28P01", "28000", "3D000", "42501")


def test_a_request_of_any_form_is_answered() -> None:
    assert answer_to(b"HEAD / HTTP/1.1\r\n\r\n").endswith(b"\r\n\r\n")
    assert b'"not_ready"' in answer_to(b"\xff" * HEAD_BYTES)
