"""A service as a process of its own, which sends its traces to a collector of these tests."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

import httpx
import pytest

from tests.launch import services
from tests.traces.collector import Collector


@pytest.fixture(scope="package")
def collector() -> Iterator[Collector]:
    collector = Collector()
    yield collector
    collector.down()


@pytest.fixture(scope="package")
async def traced(
    collector: Collector, tmp_path_factory: pytest.TempPathFactory, new_database: Callable[[], Awaitable[str]]
) -> AsyncIterator[str]:
    """The address of a service that sends there."""
    with pytest.MonkeyPatch.context() as patch, services(tmp_path_factory.mktemp("traced")) as start:
        patch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
        patch.setenv("OTEL_BSP_SCHEDULE_DELAY", "50")
        yield start(TRACES="otlp", DATABASE_URL=await new_database()).up()


@pytest.fixture
async def asked(traced: str) -> AsyncIterator[httpx.AsyncClient]:
    """A client of it that knows nothing of traces."""
    async with httpx.AsyncClient(base_url=traced, timeout=35) as client:
        yield client
