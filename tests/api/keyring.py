"""Keys as an operator makes them, and services with a database of their own: a key closes all that share one."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import asyncpg
import httpx
from pydantic import SecretStr

from tests.api.dialect import Body, accepted

if TYPE_CHECKING:
    from tests.api.conftest import Serve
    from tests.conftest import Running

ALL = ["read", "write", "delete", "admin"]


def bearer(secret: str) -> dict[str, str]:
    return {"authorization": f"Bearer {secret}"}


class Services:
    """Services on one database, which nothing else uses."""

    def __init__(self, serve: Serve, url: str) -> None:
        self._serve = serve
        self.url = url

    @classmethod
    async def make(cls, serve: Serve, new_database: Callable[[], Awaitable[str]]) -> Services:
        url = await new_database()
        return cls(serve, url)

    async def start(self, **settings: object) -> Running:
        return await self._serve(database_url=SecretStr(self.url), **settings)

    async def forget_keys(self) -> None:
        """As if none had ever been made, nor any user, nor tried to be one; services that run notice nothing."""
        for table in ("api_keys", "grants", "users", "sign_in_tries"):
            await self.sql(f"DELETE FROM holdfast.{table}")

    async def sql(self, statement: str, *args: object) -> list[asyncpg.Record]:
        connection = await asyncpg.connect(self.url)
        try:
            return await connection.fetch(statement, *args)
        finally:
            await connection.close()


@asynccontextmanager
async def client(service: Running, secret: str = "") -> AsyncIterator[httpx.AsyncClient]:
    """A client with a key, or without one."""
    headers = bearer(secret) if secret else {}
    async with httpx.AsyncClient(base_url=service.url, headers=headers, timeout=35) as http:
        yield http


async def make(http: httpx.AsyncClient, name: str = "k", scopes: list[str] | None = None, **fields: object) -> Body:
    """A new key, with its secret."""
    return accepted(
        await http.post("/v0/keys", json={"name": name, "scopes": ALL if scopes is None else scopes, **fields})
    )
