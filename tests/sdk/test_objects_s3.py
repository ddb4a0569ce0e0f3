"""The S3 protocol, as moto's server speaks it: in an environment of its own, as it would change versions of ours."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import obstore
import pytest
from obstore.store import S3Store

from holdfast import AsyncClient, AsyncTopic, ObjectError, Objects, Queue, Result
from tests.conftest import Running
from tests.programs import free_port
from tests.sdk.test_wheel import uv
from tests.sdk.workers import fact, outcome, working

pytestmark = pytest.mark.index

BUCKET = "payloads"


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], S3Store]]:
    """Gives stores by their buckets, of which BUCKET is there."""
    folder = tmp_path_factory.mktemp("moto")
    uv("venv", "--quiet", "--python", sys.executable, folder)
    uv("pip", "install", "--quiet", "--python", folder / "bin/python", "moto[s3,server]")
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    server = subprocess.Popen(
        [folder / "bin/moto_server", "-H", "127.0.0.1", "-p", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        _make_bucket(f"{url}/{BUCKET}", server)
        options: Any = {"access_key_id": "any", "secret_access_key": "any", "client_options": {"allow_http": True}}
        yield lambda bucket: S3Store(bucket, endpoint=url, region="us-east-1", **options)
    finally:
        server.kill()
        server.wait()


def _make_bucket(url: str, server: subprocess.Popen[bytes]) -> None:
    """Which also waits until the server listens."""
    while True:
        assert server.poll() is None, "moto's server has ended"
        try:
            urllib.request.urlopen(urllib.request.Request(url, method="PUT"), timeout=10).close()
        except ConnectionRefusedError:
            continue
        except OSError as error:
            if "refused" not in str(error):
                raise
        else:
            return


def keys(store: S3Store, prefix: str) -> list[str]:
    return [one["path"] for page in obstore.list(store, prefix) for one in page]


@pytest.mark.timeout(120)
async def test_payloads_go_to_s3_and_come_back(
    s3: Callable[[str], S3Store], service: Running, queue: AsyncTopic
) -> None:
    store = s3(BUCKET)
    objects = Objects(store)
    large = bytes(range(256)) * 60_000  # so large that it goes in several parts
    async with Queue(service.url, objects=objects) as keeping:

        @keeping.handler(queue.name)
        async def handler(payload: bytes) -> Result:
            return Result(payload == large)

        seq = int(await keeping.get(queue.name).push(large))
        assert len(await asyncio.to_thread(keys, store, f"holdfast/{queue.name}")) == 1
        async with working(keeping):
            assert (await outcome(queue, seq)).result is True
            await fact(lambda: not keys(store, f"holdfast/{queue.name}"))
    kept = [await objects.put_async(f"{queue.name}:{n}", n) for n in range(3)]
    assert sorted(keys(store, "holdfast")) == sorted(one["$object"]["key"] for one in kept)
    await objects.delete_async([one["$object"]["key"] for one in kept] + [f"holdfast/{queue.name}/{'0' * 32}"])
    assert keys(store, "holdfast") == []


async def test_a_missing_bucket_is_an_object_error(
    s3: Callable[[str], S3Store], service: Running, queue: AsyncTopic
) -> None:
    no_bucket = Objects(s3("nowhere"), over=10)
    async with AsyncClient(service.url, objects=no_bucket) as client:
        with pytest.raises(ObjectError, match=r"can't put holdfast/.*the object, bucket or folder does not exist"):
            await client.topic(queue.name).enqueue("x" * 100)
    key = f"holdfast/{queue.name}/{'0' * 32}"
    reference = {"$object": {"key": key, "size": 1, "sha256": "0" * 64, "content_type": "text/plain"}}
    for get in (no_bucket.get, lambda data: asyncio.run(no_bucket.get_async(data))):
        with pytest.raises(ObjectError, match=f"can't read {key}: the object, bucket or folder does not exist"):
            await asyncio.to_thread(get, reference)
    assert (await queue.jobs().page()).items == ()
