"""A collector that is away, or that hangs, is no matter for requests, nor for a stop."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import time
from collections.abc import Awaitable, Callable, Iterator

import httpx
import pytest

from app.base.traces import Spans
from app.http.bounds import MAX_META_BYTES, MAX_RECORD_BYTES
from app.http.spans import carry
from app.kernel.model import Batch
from tests.conftest import Running
from tests.traces.collector import Collector

CARRIER = {"traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}
ALONE = '{"traceparent":"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}'


@pytest.fixture
def hanging(monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """It lets everybody connect, and never answers."""
    # What can't be sent is tried again, and told of, while other tests run.
    logging.getLogger("opentelemetry.exporter").setLevel(logging.CRITICAL)
    with socket.create_server(("127.0.0.1", 0)) as server:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{server.getsockname()[1]}")
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "600")
        monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "4")
        monkeypatch.setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "2")
        server.settimeout(20)
        yield server


def span(spans: Spans, name: str) -> None:
    spans.end(spans.begin("send", name, headers=[], began_ns=time.time_ns(), attributes={}), None)


async def test_a_stop_sends_what_waits(monkeypatch: pytest.MonkeyPatch, collector: Collector) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "3600000")
    monkeypatch.setenv("OTEL_SERVICE_NAME", "jobs")
    spans = Spans("1.2.3", 0)
    span(spans, "the last")
    await spans.stop(60)
    [last] = [one for one in collector.spans if one.name == "send the last"]
    assert last.resource.items() >= {"service.name": "jobs", "service.version": "1.2.3"}.items()


async def test_requests_and_a_stop_do_not_wait_for_a_collector_that_hangs(
    hanging: socket.socket, serve: Callable[..., Awaitable[Running]], topic: str
) -> None:
    service = await serve(traces="otlp", stop_seconds=0.5)
    async with httpx.AsyncClient(base_url=service.url) as http:
        await http.put(f"/v0/topics/{topic}", json={"type": "queue"})
        for _ in range(20):  # of which 4 wait to be sent, and no more
            (await http.post(f"/v0/topics/{topic}", json={"records": [{"data": 1}]})).raise_for_status()
        jobs = (await http.post(f"/v0/topics/{topic}/claim", json={"node": "w", "max": 20})).json()["claimed"]
    assert len([job for job in jobs if "traceparent" in job["meta"]]) == 20
    await asyncio.to_thread(hanging.accept)  # it was sent to
    spans = Spans("1", 0)
    for i in range(10):
        span(spans, str(i))
    async with asyncio.timeout(20):  # of the half minute that OpenTelemetry's own end waits for an export
        await spans.stop(0.1)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ([], [ALONE, ALONE]),
        ([None, " { } "], [ALONE, ALONE]),
        (['{"a": 1}'], [ALONE[:-1] + ',"a": 1}', ALONE]),
        ([ALONE, '{"traceparent":null}'], [ALONE, '{"traceparent":null}']),
        (['{"a":{"traceparent":1}}', None], [ALONE[:-1] + ',"a":{"traceparent":1}}', ALONE]),
    ],
)
def test_a_record_carries_its_own_context_or_its_requests(before: list[str | None], after: list[str | None]) -> None:
    batch = Batch(payloads=[b"1", b"2"], metadata=before)
    more = sum(len(text or "") for text in after) - sum(len(text or "") for text in before)
    assert (carry(batch, CARRIER), batch.metadata) == (more, after)


def test_a_record_that_would_become_too_large_goes_without() -> None:
    for payload, metadata in (
        (b"1", '{"a":"%s"}' % ("x" * (MAX_META_BYTES - 50))),
        (b"1", json.dumps(dict.fromkeys(map(str, range(64))))),
        (b"x" * (MAX_RECORD_BYTES - 20), None),
    ):
        batch = Batch(payloads=[payload], metadata=[metadata])
        assert (carry(batch, CARRIER), batch.metadata) == (0, [metadata])
