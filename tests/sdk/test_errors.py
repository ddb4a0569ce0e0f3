"""Every code of the service has a class, what is no answer of the service is an error, and an error says what is
wrong without saying a secret."""

from __future__ import annotations

import asyncio
import base64
import pickle
import re
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from holdfast import (
    AsyncClient,
    AsyncTopic,
    Client,
    HoldfastError,
    LeaseLost,
    Queue,
    StorageError,
    TopicConfig,
    Worker,
    errors,
    models,
)
from tests.conftest import Running

PAGE = (Path(__file__).parents[2] / "docs/errors.md").read_text()


def documented() -> list[tuple[str, int]]:
    """The codes of docs/errors.md, each with its status."""
    table = PAGE[PAGE.index("| code | status | when |") :].split("\n\n")[0]
    pairs: list[tuple[str, int]] = []
    for line in table.splitlines()[2:]:
        codes, statuses, *_ = line.strip("|").split("|")
        names, numbers = re.findall(r"`(\w+)`", codes), [int(number) for number in re.findall(r"[0-9]+", statuses)]
        pairs += zip(names, numbers, strict=True)
    assert ("topic_not_found", 404) in pairs
    return pairs


# Of requests that no client of ours makes.
OTHERS = {"method_not_allowed", "not_acceptable", "request_timeout", "uri_too_long", "headers_too_large"}
OTHERS |= {"slow_reader", "unsupported_media_type"}


@pytest.mark.parametrize(("code", "status"), documented())
def test_a_code_has_a_class(code: str, status: int) -> None:
    error = errors.status_error(status, code, "why")
    assert (error.code, error.status, error.message) == (code, status, "why")
    assert (type(error) is errors.APIStatusError) == (code in OTHERS)


async def test_an_error_says_all_that_the_service_does(client: AsyncClient, topic: str) -> None:
    await client.topic(topic).put(TopicConfig(max_depth=1))
    patient = client.with_options(retries=0)
    with pytest.raises(errors.Throttled) as caught:
        await patient.topic(topic).enqueue_many([1, 2])
    error = caught.value
    assert (error.status, error.code, error.detail["limit"], error.retry_after) == (429, "throttled", "max_depth", 1.0)
    assert topic in str(error)
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), copy.detail, str(copy)) == (errors.Throttled, error.detail, str(error))


@pytest.mark.parametrize(
    ("error", "said"), [(LeaseLost("7"), "7"), (StorageError("write failed", OSError("gone")), "write failed: gone")]
)
def test_errors_travel_between_processes(error: HoldfastError, said: str) -> None:
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), str(copy)) == (type(error), str(error))
    assert said in str(error)


@asynccontextmanager
async def answering(status: str, *headers: str, body: str = "<h1>hello</h1>") -> AsyncIterator[str]:
    """A server that is not ours, and says this to everybody."""
    lines = [f"HTTP/1.1 {status}", f"content-length: {len(body)}", "connection: close", *headers, "", body]

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write("\r\n".join(lines).encode())
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


@pytest.mark.parametrize("body", ["<h1>hello</h1>", "{}", "[]", '{"claimed": [{}]}', '{"claimed": [], "ready": null}'])
async def test_what_is_no_answer_to_a_claim_is_said_to_be_none(body: str) -> None:
    async with answering("200 OK", "content-type: application/json", body=body) as url, AsyncClient(url) as client:
        with pytest.raises(errors.InvalidResponse):
            await client.topic("t").claim()


async def test_a_proxys_refusal_is_an_error_by_its_status_and_a_redirect_is_not_followed() -> None:
    bad_gateway = answering("502 Bad Gateway", "x-request-id: r-17", "retry-after: 2")
    async with bad_gateway as url, AsyncClient(url, retries=0) as client:
        with pytest.raises(errors.InternalError) as caught:
            await client.health()
    assert (caught.value.status, caught.value.code) == (502, "")
    assert (caught.value.request_id, caught.value.retry_after) == ("r-17", 2.0)
    assert "<h1>hello</h1>" in caught.value.message
    # It would carry the key to whoever it names.
    async with answering("302 Found", "location: http://127.0.0.1:9/") as url, AsyncClient(url) as client:
        with pytest.raises(errors.APIStatusError) as redirected:
            await client.health()
    assert redirected.value.status == 302


async def test_a_connection_error_names_the_address() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"http://127.0.0.1:{server.getsockname()[1]}"
    with (
        Client(address.replace("//", "//ada:pass-word@"), retries=0) as client,
        pytest.raises(errors.APIConnectionError, match=f"^No answer from {address}: ConnectError") as caught,
    ):
        client.health()
    assert "pass-word" not in str(caught.value)
    async with AsyncClient(address, retries=0) as one:
        with pytest.raises(errors.APIConnectionError, match=f"No answer from {address}"):
            await one.health()


async def test_a_refused_key_is_told_from_a_missing_one_and_ends_a_worker(
    serve: Callable[..., Awaitable[Running]], new_database: Callable[[], Awaitable[str]]
) -> None:
    service = await serve(database_url=SecretStr(await new_database()), api_keys="right")
    for url, key, said in (
        (service.url, "wrong", "An API key was sent and rejected."),
        (service.url.replace("//", "//ada:wrong@"), None, "A user and password were sent and rejected."),
        (service.url, None, "No key was sent: set HOLDFAST_API_KEY, or pass api_key."),
    ):
        async with AsyncClient(url, key) as client:
            with pytest.raises(errors.Unauthorized) as caught:
                await client.topic("mail").get()
        assert str(caught.value).endswith(said)
    async with AsyncClient(service.url, "right") as client:
        assert (await client.topic("mail").put()).created
    async with Queue(service.url, "wrong") as queue:
        queue.handler("mail")(lambda _: None)
        with pytest.raises(errors.Unauthorized, match="An API key was sent and rejected"):
            await asyncio.wait_for(Worker(queue).run(signals=False), 30)


async def test_payloads_that_have_no_json_are_refused_before_they_are_sent(queue: AsyncTopic, handlers: Queue) -> None:
    circular: list[Any] = []
    circular.append({"again": circular})
    itself = "The value can't be sent: a list or an object in it contains itself"
    for call, error, said in (
        (lambda: queue.enqueue({1, 2}), TypeError, "A set can't be encoded as JSON"),
        (lambda: queue.enqueue(float("nan")), ValueError, "JSON compliant"),
        (lambda: queue.enqueue_many([]), ValueError, "at least one"),
        (lambda: queue.enqueue(circular), TypeError, itself),
        (lambda: queue.enqueue_many([1, circular]), TypeError, itself),
        (lambda: handlers.get(queue.name).push(circular), TypeError, itself),
        (lambda: handlers.get(queue.name).push(circular, content_type="application/msgpack"), TypeError, itself),
    ):
        with pytest.raises(error, match=said):
            await call()
    assert (await queue.jobs().page()).items == ()


def test_the_environment_says_where_and_as_whom(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_URL", "http://queue:8080/")
    monkeypatch.setenv("HOLDFAST_API_KEY", "k")
    account = AsyncClient().account
    assert (account.base_url, account.authorization) == ("http://queue:8080", "Bearer k")
    assert AsyncClient("http://other:1", "l").account.authorization == "Bearer l"


def test_a_password_of_the_address_is_sent_and_not_shown() -> None:
    account = Client("https://ada:s%40cr%C3%A9t@queue:8443/below/").account
    assert account.base_url == "https://queue:8443/below"
    assert account.authorization == "Basic " + base64.b64encode("ada:s@crét".encode()).decode()
    assert Client("http://ada@[::1]:1", "k").account.authorization == "Basic " + base64.b64encode(b"ada:").decode()


@pytest.mark.parametrize(
    "wrong",
    [
        *("localhost:8080", "ftp://x", "http://"),
        *("ada:secret@queue", "http://ada:sec/ret@queue", "http://ada:secret@queue:x", "ftp://ada:secret@q"),
    ],
)
def test_an_address_that_is_none_is_refused_at_once_and_its_password_is_not_shown(wrong: str) -> None:
    with pytest.raises(ValueError, match="address must be http") as refused:
        AsyncClient(wrong)
    assert "sec" not in str(refused.value)


def test_secrets_are_in_no_repr() -> None:
    assert "hidden" not in repr(AsyncClient(api_key="hidden").account)
    assert "hidden" not in repr(AsyncClient("http://ada:hidden@queue").account)
    token = models.UserToken(user_id="ada", token="hidden", expires_at=datetime.now(UTC))
    assert "hidden" not in repr(token)
    assert "hidden" not in repr(models.Webhook(secret="hidden"))
