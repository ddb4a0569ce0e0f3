"""The names that users import: one that goes away breaks them, and one that comes is a promise."""

from __future__ import annotations

import pydoc
import tomllib
from pathlib import Path

import holdfast
from app import __version__ as service_version

SDK = Path(__file__).parents[2] / "sdk"

EXPORTED = {
    *("AsyncClient", "Client", "AsyncTopic", "SyncTopic", "Options", "Record", "TopicConfig"),
    *("BrokerQueue", "DirectQueue", "HeartbeatManager", "Job", "JobStatus", "QueueState"),
    *("Queue", "Worker", "AsyncContext", "SyncContext", "Retry", "Dead", "Result", "Schedule", "Isolation"),
    *("HoldfastError", "JQueueError", "CASConflictError", "JobNotFoundError", "LeaseLost", "StorageError"),
    *("async_context", "sync_context", "Objects", "ObjectError"),
    *("errors", "models", "sql", "__version__"),
}


def test_the_exported_names() -> None:
    assert set(holdfast.__all__) == EXPORTED
    assert all(hasattr(holdfast, name) for name in EXPORTED)


def test_modules_of_our_own_are_private() -> None:
    """What begins with an underscore may change; the rest is public, and each of its names a promise."""
    root = SDK / "src/holdfast"
    public = {path.name.removesuffix(".py") for path in root.iterdir() if not path.name.startswith("_")}
    assert public == {"errors", "models", "sql", "testing", "py.typed"}


def test_httpx_is_all_that_is_required() -> None:
    project = tomllib.loads((SDK / "pyproject.toml").read_text())["project"]
    assert [need.partition(">")[0] for need in project["dependencies"]] == ["httpx"]


def test_client_and_service_are_released_together() -> None:
    assert holdfast.__version__ == service_version


def test_every_error_is_one_tree() -> None:
    kinds = [kind for kind in vars(holdfast.errors).values() if isinstance(kind, type) and issubclass(kind, Exception)]
    assert len(kinds) > 20
    assert all(issubclass(kind, holdfast.HoldfastError) for kind in kinds)


def test_the_help_of_a_class_shows_its_verbs() -> None:
    page = pydoc.plain(pydoc.render_doc(type(holdfast.Client().topic("t"))))
    assert "claim(self, *, max" in page
    assert "Lease up to `max` jobs" in page
