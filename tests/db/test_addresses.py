"""A database at several addresses, as after a failover: the service works with the one that takes writes."""

from __future__ import annotations

import socket
from collections.abc import Awaitable, Callable
from urllib.parse import urlsplit, urlunsplit

from app.base.db import schema
from tests.api.conftest import Serve
from tests.api.dialect import Topic
from tests.api.keyring import Services, client


async def test_a_service_works_with_the_address_that_answers(
    serve: Serve, new_database: Callable[[], Awaitable[str]]
) -> None:
    parts = urlsplit(await new_database())
    credentials, _, host = parts.netloc.rpartition("@")
    with socket.socket() as taken:  # bound, and nobody listens
        taken.bind(("127.0.0.1", 0))
        both = f"{credentials}@127.0.0.1:{taken.getsockname()[1]},{host}"
        url = urlunsplit(parts._replace(netloc=both, query="target_session_attrs=read-write"))
        await schema.upgrade(url)
        async with client(await Services(serve, url).start()) as http:
            topic = Topic(http, "mail")
            await topic.put()
            await topic.add(1)
            await topic.take()
