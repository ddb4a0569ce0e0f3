"""Every code of the service has a class, and what is no answer of the service is an error, too."""

from __future__ import annotations

import asyncio
import base64
import pickle
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest

from holdfast import AsyncClient, Client, HoldfastError, LeaseLost, StorageError, TopicConfig, errors, models

PAGE = (Path(__file__).parents[2] / "docs/errors.md").read_text()


def documented() -> list[tuple[str, int]]:
    """The codes of docs/errors.md, each with its status."""
    table = PAGE[PAGE.index("| code | status | when |") :].split("\n\n")[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[2:]]
    pairs = [(code, status) for codes, statuses, *_ in rows for code, status in _pairs(codes, statuses)]
    assert ("topic_not_found", 404) in pairs
    return pairs


def _pairs(codes: str, statuses: str) -> list[tuple[str, int]]:
    names, numbers = re.findall(r"`(\w+)`", codes), [int(number) for number in re.findall(r"[0-9]+", statuses)]
    return list(zip(names, numbers, strict=True))


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


@pytest.mark.parametrize("error", [LeaseLost("7"), StorageError("why", OSError("gone"))])
def test_errors_travel_between_processes(error: HoldfastError) -> None:
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), str(copy)) == (type(error), str(error))


@asynccontextmanager
async def answering(answer: bytes) -> AsyncIterator[str]:
    """A server that is not ours, and says this to everybody."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


def page(status: str, *headers: str, body: str = "<h1>hello</h1>") -> bytes:
    lines = [f"HTTP/1.1 {status}", f"content-length: {len(body)}", "connection: close", *headers, "", body]
    return "\r\n".join(lines).encode()


async def test_a_page_of_somebody_elses_is_no_answer() -> None:
    async with answering(page("200 OK")) as url, AsyncClient(url) as client:
        with pytest.raises(errors.InvalidResponse):
            await client.health()


@pytest.mark.parametrize("body", ["{}", "[]", '{"claimed": [{}]}', '{"claimed": [], "ready": null}'])
async def test_what_is_no_answer_to_a_claim_is_said_to_be_none(body: str) -> None:
    async with (
        answering(page("200 OK", "content-type: application/json", body=body)) as url,
        AsyncClient(url) as client,
    ):
        with pytest.raises(errors.InvalidResponse):
            await client.topic("t").claim()


async def test_a_proxys_refusal_is_an_error_by_its_status() -> None:
    answer = page("502 Bad Gateway", "x-request-id: r-17", "retry-after: 2")
    async with answering(answer) as url, AsyncClient(url, retries=0) as client:
        with pytest.raises(errors.InternalError) as caught:
            await client.health()
    assert (caught.value.status, caught.value.code) == (502, "")
    assert (caught.value.request_id, caught.value.retry_after) == ("r-17", 2.0)
    assert "<h1>hello</h1>" in caught.value.message


async def test_a_redirect_is_not_followed() -> None:
    """It would carry the key to whoever it names."""
    async with answering(page("302 Found", "location: http://127.0.0.1:9/")) as url, AsyncClient(url) as client:
        with pytest.raises(errors.APIStatusError) as caught:
            await client.health()
    assert caught.value.status == 302


async def test_a_bad_key_is_unauthorized(
    serve: Callable[..., Awaitable[object]], new_database: Callable[[], Awaitable[str]]
) -> None:
    from pydantic import SecretStr

    service = await serve(database_url=SecretStr(await new_database()), api_keys="good-one")
    for key, refused in (("good-one", False), ("bad-one", True), (None, True)):
        async with AsyncClient(service.url, key) as client:  # type: ignore[attr-defined]
            if refused:
                with pytest.raises(errors.Unauthorized):
                    await client.topic("mail").get()
            else:
                assert (await client.topic("mail").put()).created


@pytest.mark.parametrize("url", ["localhost:8080", "ftp://x", "http://"])
def test_an_address_that_is_none_is_refused_at_once(url: str) -> None:
    with pytest.raises(ValueError, match="address"):
        AsyncClient(url)


def test_what_has_no_json_is_refused_before_it_is_sent() -> None:
    mail = Client("http://127.0.0.1:9").topic("mail")
    with pytest.raises(TypeError, match="A set has no JSON"):
        mail.enqueue({1, 2})
    with pytest.raises(ValueError, match="JSON compliant"):
        mail.enqueue(float("nan"))
    with pytest.raises(ValueError, match="at least one"):
        mail.enqueue_many([])


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
    "wrong", ["ada:secret@queue", "http://ada:sec/ret@queue", "http://ada:secret@queue:x", "ftp://ada:secret@q"]
)
def test_a_password_of_a_wrong_address_is_not_shown(wrong: str) -> None:
    with pytest.raises(ValueError, match="address is http") as refused:
        AsyncClient(wrong)
    assert "sec" not in str(refused.value)


def test_secrets_are_in_no_repr() -> None:
    assert "hidden" not in repr(AsyncClient(api_key="hidden").account)
    assert "hidden" not in repr(AsyncClient("http://ada:hidden@queue").account)
    token = models.UserToken(user_id="ada", token="hidden", expires_at=datetime.now(UTC))
    assert "hidden" not in repr(token)
    assert "hidden" not in repr(models.Webhook(secret="hidden"))
