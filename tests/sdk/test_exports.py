"""The names that users import: one that goes away breaks them, and one that comes is a promise. And the pages say
what is so: their Python runs as it stands, and prints what they say."""

from __future__ import annotations

import pydoc
import tomllib
from collections.abc import Awaitable, Callable

import pytest

import holdfast
from app import __version__ as service_version
from tests.api.keyring import Services
from tests.sdk.conftest import Serve
from tests.sdk.pages import ROOT, run_page

SDK = ROOT / "sdk"

EXPORTED = {
    *("AsyncClient", "Client", "AsyncTopic", "SyncTopic", "Options", "Record", "TopicConfig"),
    *("BrokerQueue", "DirectQueue", "HeartbeatManager", "Job", "JobStatus", "QueueState"),
    *("Queue", "Worker", "AsyncContext", "SyncContext", "Retry", "Dead", "Result", "Schedule", "Isolation"),
    *("HoldfastError", "JQueueError", "CASConflictError", "JobNotFoundError", "LeaseLost", "StorageError"),
    *("async_context", "sync_context", "Objects", "ObjectError"),
    *("errors", "models", "sql", "__version__"),
}


def test_the_exported_names() -> None:
    """What begins with an underscore may change; the rest is public, and each of its names a promise."""
    assert set(holdfast.__all__) == EXPORTED
    assert all(hasattr(holdfast, name) for name in EXPORTED)
    modules = {path.name.removesuffix(".py") for path in (SDK / "src/holdfast").iterdir()}
    assert {name for name in modules if not name.startswith("_")} == {"errors", "models", "sql", "testing", "py.typed"}
    kinds = [kind for kind in vars(holdfast.errors).values() if isinstance(kind, type) and issubclass(kind, Exception)]
    assert len(kinds) > 20
    assert all(issubclass(kind, holdfast.HoldfastError) for kind in kinds)


def test_httpx_is_all_that_is_required_and_the_service_is_released_with_it() -> None:
    project = tomllib.loads((SDK / "pyproject.toml").read_text())["project"]
    assert [need.partition(">")[0] for need in project["dependencies"]] == ["httpx"]
    assert holdfast.__version__ == service_version


def test_the_help_of_a_class_shows_its_verbs() -> None:
    page = pydoc.plain(pydoc.render_doc(type(holdfast.Client().topic("t"))))
    assert "claim(self, *, max" in page
    assert "Claim up to `max` jobs" in page


PAGES = [
    *("docs/quick-start.md", "docs/sdk.md", "docs/sql.md", "docs/enqueue.md"),
    "sdk/README.md",
]


@pytest.mark.parametrize("page", PAGES)
async def test_the_examples_of_a_page(
    serve: Serve, new_database: Callable[[], Awaitable[str]], page: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    services = await Services.make(serve, new_database)
    service = await services.start()
    monkeypatch.setenv("DATABASE_URL", services.url)
    await run_page((ROOT / page).read_text(), service.url)
