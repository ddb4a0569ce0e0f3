"""Fixtures of `holdfast.testing`. pytest loads this wherever the client is installed, so it loads nothing but what a
test asks for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from holdfast.testing import Service


@pytest.fixture(scope="session")
def holdfast_session() -> Iterator[Service]:
    """A service for all tests of this process, which they share with what the others have left there."""
    from holdfast.testing import ServiceMissing, start  # noqa: PLC0415  (not everybody's tests want it)

    try:
        with start() as service:
            yield service
    except ServiceMissing as error:
        pytest.fail(str(error), pytrace=False)


@pytest.fixture
def holdfast_service(holdfast_session: Service, monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    """The same, with nothing in it. Clients that are made without an address are its clients."""
    monkeypatch.setenv("HOLDFAST_URL", holdfast_session.url)
    monkeypatch.delenv("HOLDFAST_API_KEY", raising=False)
    yield holdfast_session
    holdfast_session.clean()
