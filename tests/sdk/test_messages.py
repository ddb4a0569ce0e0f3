"""What the SDK says where something is wrong, and what it refuses before it asks the service."""

from __future__ import annotations

import asyncio
import logging
import socket
import subprocess
import threading
from collections.abc import Awaitable, Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from obstore.store import S3Store
from pydantic import SecretStr

from holdfast import (
    AsyncClient,
    AsyncTopic,
    Client,
    ObjectError,
    Objects,
    Queue,
    Worker,
    errors,
)
from tests.conftest import Running
from tests.sdk.cli import command, environment
from tests.sdk.workers import fact, outcome, working


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


async def test_a_refused_key_is_told_from_a_missing_one(service_with_keys: Running) -> None:
    for url, key, said in (
        (service_with_keys.url, "wrong", "An API key was sent and refused."),
        (service_with_keys.url.replace("//", "//ada:wrong@"), None, "A user and password were sent and refused."),
        (service_with_keys.url, None, "No key was sent: set HOLDFAST_API_KEY, or give api_key."),
    ):
        async with AsyncClient(url, key) as client:
            with pytest.raises(errors.Unauthorized) as caught:
                await client.topic("mail").get()
        assert str(caught.value).endswith(said)


@pytest.fixture
async def service_with_keys(
    serve: Callable[..., Awaitable[Running]], new_database: Callable[[], Awaitable[str]]
) -> Running:
    return await serve(database_url=SecretStr(await new_database()), api_keys="right")


async def test_a_wrong_key_ends_the_worker(service_with_keys: Running) -> None:
    async with Queue(service_with_keys.url, "wrong") as queue:
        queue.handler("mail")(lambda _: None)
        with pytest.raises(errors.Unauthorized, match="An API key was sent and refused"):
            await asyncio.wait_for(Worker(queue).run(signals=False), 30)


async def test_the_command_says_why_it_ends(service_with_keys: Running, tmp_path: Path) -> None:
    (tmp_path / "tasks.py").write_text(
        "from holdfast import Queue\nqueue = Queue()\n@queue.handler\ndef mail(_): ...\n"
    )
    env = environment({"HOLDFAST_URL": service_with_keys.url, "HOLDFAST_API_KEY": "wrong"})
    words = command("worker", "tasks:queue")
    ended = await asyncio.to_thread(subprocess.run, words, cwd=tmp_path, env=env, capture_output=True, text=True)
    assert ended.returncode == 1
    assert "The worker ends: 401 unauthorized: " in ended.stderr
    assert "An API key was sent and refused." in ended.stderr
    assert "Traceback" not in ended.stderr


async def test_a_worker_waits_for_its_topic_and_says_so_once(
    client: AsyncClient, handlers: Queue, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "holdfast")
    handlers.handler(topic)(lambda _: None)

    def told(what: str) -> int:
        return sum(what in record.getMessage() for record in caplog.records)

    async with working(handlers) as worker:
        await fact(lambda: worker._lanes and worker._lanes[0]._failures > 3)
        await client.topic(topic).put()
        await outcome(client.topic(topic), (await client.topic(topic).enqueue(1)).seq)
    assert (told(f"Waiting for topic {topic}: no topic has this name yet"), told(f"Topic {topic} is there")) == (1, 1)
    assert told("A claim of") == 0


def circular() -> list[Any]:
    made: list[Any] = []
    made.append({"again": made})
    return made


async def test_what_contains_itself_is_a_type_error(queue: AsyncTopic, handlers: Queue) -> None:
    for call in (
        lambda: queue.enqueue(circular()),
        lambda: queue.enqueue_many([1, circular()]),
        lambda: handlers.get(queue.name).push(circular()),
        lambda: handlers.get(queue.name).push(circular(), content_type="application/msgpack"),
    ):
        with pytest.raises(TypeError, match="The value can't be sent: a list or an object in it contains itself"):
            await call()
    with pytest.raises(ValueError, match="JSON"):
        await queue.enqueue(float("nan"))


async def test_a_seq_names_a_job_to_cancel(queue: AsyncTopic) -> None:
    seq = (await queue.enqueue(1)).seq
    assert (await queue.cancel(seq)).cancelled == 1
    assert (await queue.result(seq)).state == "cancelled"


async def test_a_seq_names_a_job_to_release(queue: AsyncTopic) -> None:
    seq = (await queue.enqueue(1)).seq
    assert [job.seq for job in (await queue.claim(node="n")).jobs] == [seq]
    assert (await queue.release(seq)).released == 1
    assert (await queue.job(seq)).state == "ready"


class NoBucket(BaseHTTPRequestHandler):
    """Answers as S3 does for a bucket that is not there."""

    def _answer(self) -> None:
        self.rfile.read(int(self.headers.get("content-length") or 0))
        said = b"<Error><Code>NoSuchBucket</Code><Message>The specified bucket does not exist</Message></Error>"
        self.send_response(404)
        self.send_header("content-length", str(len(said)))
        self.end_headers()
        self.wfile.write(said)

    do_PUT = do_GET = do_POST = do_DELETE = _answer  # noqa: N815

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def no_bucket() -> Iterator[S3Store]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), NoBucket)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield S3Store(
        "payloads",
        endpoint=f"http://127.0.0.1:{server.server_port}",
        region="us-east-1",
        access_key_id="any",
        secret_access_key="any",
        client_options={"allow_http": True},
    )
    server.shutdown()
    server.server_close()


async def test_a_missing_bucket_is_an_object_error(service: Running, queue: AsyncTopic, no_bucket: S3Store) -> None:
    objects = Objects(no_bucket, over=10)
    async with AsyncClient(service.url, objects=objects) as client:
        with pytest.raises(ObjectError, match=r"can't put holdfast/.*there is no such object, bucket or folder"):
            await client.topic(queue.name).enqueue("x" * 100)
    key = f"holdfast/{queue.name}/{'0' * 32}"
    reference = {"$object": {"key": key, "size": 1, "sha256": "0" * 64, "content_type": "text/plain"}}
    for get in (objects.get, lambda data: asyncio.run(objects.get_async(data))):
        with pytest.raises(ObjectError, match=f"can't read {key}: there is no such object, bucket or folder"):
            await asyncio.to_thread(get, reference)
    assert (await queue.jobs().page()).items == ()
