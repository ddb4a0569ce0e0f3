"""Fixtures of `holdfast.testing`. pytest loads this module wherever the client is installed, so it imports the rest
lazily."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from holdfast.testing import Service


@pytest.fixture(scope="session")
def holdfast_session() -> Iterator[Service]:
    """A service for all tests of this process. It keeps the data of previous tests."""
    from holdfast.testing import ServiceMissing, start  # noqa: PLC0415  (lazy)

    try:
        with start() as service:
            yield service
    except ServiceMissing as error:
        pytest.fail(str(error), pytrace=False)


@pytest.fixture
def holdfast_service(holdfast_session: Service, monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    """An empty service. Clients without an address connect to it."""
    monkeypatch.setenv("HOLDFAST_URL", holdfast_session.url)
    monkeypatch.delenv("HOLDFAST_API_KEY", raising=False)
    yield holdfast_session
    holdfast_session.clean()
