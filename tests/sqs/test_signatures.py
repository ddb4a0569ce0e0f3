"""Where sign-in is on: what is signed by a key's credentials is let in with the key's rights, and nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from botocore.auth import SigV4Auth, SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from tests.api.conftest import Serve
from tests.conftest import Running
from tests.sqs.conftest import REGION, Sqs

Made = Callable[..., Awaitable[dict[str, Any]]]
FORM = {"content-type": "application/x-www-form-urlencoded"}


@pytest.fixture(scope="module")
async def guarded(serve: Serve, new_database: Callable[[], Awaitable[str]]) -> Running:
    return await serve(database_url=await new_database(), api_keys="root")


@pytest.fixture
async def root(guarded: Running) -> Any:
    async with httpx.AsyncClient(base_url=guarded.url, headers={"authorization": "Bearer root"}) as http:
        yield http


@pytest.fixture
def made(root: httpx.AsyncClient) -> Made:
    """Makes a key, with its credentials."""

    async def make(*scopes: str, **fields: object) -> dict[str, Any]:
        body = {"name": "sqs", "scopes": scopes or ["read", "write", "delete", "admin"], "sqs": True, **fields}
        answer = await root.post("/v0/keys", json=body)
        assert answer.status_code == 201, answer.text
        return dict(answer.json())

    return make


async def client(service: Running, key: dict[str, Any], **other: str) -> Sqs:
    said = {"access_key": key["sqs"]["access_key_id"], "secret": key["sqs"]["secret_access_key"], **other}
    return await asyncio.to_thread(Sqs, service.url, **said)


async def test_a_signed_request_has_the_rights_of_its_key(guarded: Running, made: Made, topic: str) -> None:
    admin = await client(guarded, await made())
    queue = await admin.make(topic)
    await queue.send("x")
    reader = await client(guarded, await made("read"))
    assert await reader.get_queue_attributes(QueueUrl=queue.url, AttributeNames=["QueueArn"])
    code, said = await reader.refused("send_message", QueueUrl=queue.url, MessageBody="x")
    assert (code, "lacks the scope write" in said) == ("AccessDeniedException", True)
    elsewhere = await client(guarded, await made("read", prefixes=["other"]))
    assert (await elsewhere.refused("receive_message", QueueUrl=queue.url))[0] == "AccessDeniedException"
    assert "QueueUrls" not in await elsewhere.list_queues()
    blind = await client(guarded, await made("read", "write", payloads="hidden"))
    assert (await blind.refused("receive_message", QueueUrl=queue.url))[0] == "AccessDeniedException"


async def test_a_tenants_key_sees_its_own_messages(guarded: Running, made: Made, topic: str) -> None:
    queue = await (await client(guarded, await made())).make(topic)
    await queue.send("theirs", MessageGroupId="b")
    mine = await client(guarded, await made("read", "write", tenant="a"))
    await mine.send_message(QueueUrl=queue.url, MessageBody="mine")
    [message] = (await mine.receive_message(QueueUrl=queue.url, MaxNumberOfMessages=10))["Messages"]
    assert message["Body"] == "mine"
    code, _ = await mine.refused("send_message", QueueUrl=queue.url, MessageBody="x", MessageGroupId="b")
    assert code == "AccessDeniedException"


async def test_wrong_credentials_are_refused(guarded: Running, made: Made) -> None:
    key = await made()
    for other, name in (
        ({"secret": "wrong"}, "SignatureDoesNotMatch"),
        ({"access_key": "HFKA0000000000000000"}, "InvalidClientTokenId"),
        ({"access_key": "AKIAIOSFODNN7EXAMPLE"}, "InvalidClientTokenId"),
    ):
        assert (await (await client(guarded, key, **other)).refused("list_queues"))[0] == name


async def test_a_rotated_key_has_new_credentials_and_its_old_ones_for_a_while(
    guarded: Running, made: Made, root: httpx.AsyncClient
) -> None:
    key = await made()
    answer = await root.post(f"/v0/keys/{key['id']}/rotate", json={"grace_ms": 60_000, "sqs": True})
    new = answer.json()
    assert new["sqs"]["access_key_id"] == key["sqs"]["access_key_id"]
    for one in (key, new):
        assert await (await client(guarded, one)).list_queues()
    await root.delete(f"/v0/keys/{key['id']}")
    for one in (key, new):
        assert (await (await client(guarded, one)).refused("list_queues"))[0] == "InvalidClientTokenId"


def signed(
    url: str, key: dict[str, Any], body: str, *, query: bool = False, ago: timedelta = timedelta()
) -> AWSRequest:
    request = AWSRequest(
        "GET" if query else "POST", url, headers=None if query else dict(FORM), data=None if query else body
    )
    credentials = Credentials(key["sqs"]["access_key_id"], key["sqs"]["secret_access_key"])
    auth = SigV4QueryAuth(credentials, "sqs", REGION, expires=60) if query else SigV4Auth(credentials, "sqs", REGION)
    at = datetime.now(UTC) - ago
    request.context["timestamp"] = at.strftime("%Y%m%dT%H%M%SZ")
    import botocore.auth

    now = botocore.auth.get_current_datetime if hasattr(botocore.auth, "get_current_datetime") else None
    if now is not None:
        botocore.auth.get_current_datetime = lambda *_a, **_k: at.replace(tzinfo=None)
    try:
        auth.add_auth(request)
    finally:
        if now is not None:
            botocore.auth.get_current_datetime = now
    return request


async def sent(request: AWSRequest, body: str | None = None) -> httpx.Response:
    prepared = request.prepare()
    async with httpx.AsyncClient() as http:
        content = body if body is not None else prepared.body
        return await http.request(prepared.method, prepared.url, headers=dict(prepared.headers), content=content)


async def test_a_signature_is_good_for_five_minutes_and_for_its_body(guarded: Running, made: Made) -> None:
    key, body = await made(), "Action=ListQueues"
    url = f"{guarded.url}/"
    assert (await sent(signed(url, key, body))).status_code == 200
    assert "SignatureDoesNotMatch" in (await sent(signed(url, key, body), "Action=PurgeQueue")).text
    for ago in (timedelta(minutes=6), timedelta(minutes=-6)):
        assert "RequestExpired" in (await sent(signed(url, key, body, ago=ago))).text
    async with httpx.AsyncClient() as http:
        refused = await http.post(url, content=body, headers=FORM)
    assert (refused.status_code, "MissingAuthenticationToken" in refused.text) == (403, True)


async def test_a_presigned_address_works_until_it_expires(guarded: Running, made: Made, topic: str) -> None:
    key = await made()
    queue = await (await client(guarded, key)).make(topic)
    url = f"{guarded.url}{urlsplit(queue.url).path}?Action=SendMessage&MessageBody=hello"
    request = signed(url, key, "", query=True)
    answer = await sent(request)
    assert (answer.status_code, "<MessageId>" in answer.text) == (200, True)
    request.url = request.url.replace("hello", "other")
    assert "SignatureDoesNotMatch" in (await sent(request)).text
    assert "RequestExpired" in (await sent(signed(url, key, "", query=True, ago=timedelta(minutes=2)))).text
    [message] = await queue.receive()
    assert message["Body"] == "hello"
