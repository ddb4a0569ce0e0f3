"""A service with a key, on a database of the module's own."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import pytest

from tests.api.keyring import Services

if TYPE_CHECKING:
    from tests.api.conftest import Serve
    from tests.conftest import Running


@pytest.fixture(scope="module")
async def services(serve: Serve, new_database: Callable[[], Awaitable[str]]) -> Services:
    return await Services.make(serve, new_database)


@pytest.fixture(scope="module")
async def service(services: Services) -> Running:
    return await services.start(api_keys="root", bcrypt_cost=10)
