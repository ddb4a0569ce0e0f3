"""The backup of docs/operations/postgres.md: a database is dumped under its service and restored into a second cluster
by the commands of the page. Clients that remember the first one get correct answers."""

from __future__ import annotations

import asyncio
import re
import subprocess
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import asyncpg
import pytest

from app.base.db.embedded import EmbeddedPostgres
from app.errors import ConfigurationError
from tests.api.conftest import Serve
from tests.api.dialect import Body, Topic
from tests.api.keyring import Services, client

PAGE = Path(__file__).parents[2] / "docs/operations/postgres.md"
JUMP = re.compile(r"^ *```sql\n( *DO \$\$.*?)^ *```$", re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def second(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedPostgres]:
    """A cluster that has never seen the first one's transactions."""
    postgres = EmbeddedPostgres(tmp_path_factory.mktemp("second"), unsafe_fast=True)
    try:
        postgres.start()
    except ConfigurationError as error:
        pytest.skip(str(error))
    yield postgres
    postgres.stop(0)


async def run(postgres: EmbeddedPostgres, program: str, *words: str) -> None:
    command = [str(postgres.cluster.programs.bindir / program), *words]
    ran = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, timeout=120, check=False)
    assert ran.returncode == 0, ran.stderr


async def restored(postgres: EmbeddedPostgres, dump: Path, name: str, *, jumps: bool) -> str:
    """The URL of a database of the second cluster, restored as the page says: with its third step, or without."""
    url = urlunsplit(urlsplit(postgres.url)._replace(path=f"/{name}"))
    admin = await asyncpg.connect(postgres.url)
    await admin.execute(f'CREATE DATABASE "{name}"')
    await admin.close()
    await run(postgres, "pg_restore", "--exit-on-error", "--no-owner", "--no-privileges", f"--dbname={url}", str(dump))
    if jumps:
        [statement] = JUMP.findall(PAGE.read_text())
        db = await asyncpg.connect(url)
        await db.execute(statement)
        await db.close()
    return url


def data(answer: Body) -> list[object]:
    return [record["data"] for record in answer["records"]]


@pytest.mark.slow
async def test_a_restored_queue_and_those_who_knew_it_before(
    second: EmbeddedPostgres, serve: Serve, new_database: Callable[[], Awaitable[str]], tmp_path: Path
) -> None:
    dump = tmp_path / "holdfast.dump"
    first = await Services.make(serve, new_database)
    async with client(await first.start()) as http:
        log, mail = Topic(http, "visits"), Topic(http, "mail")
        await log.put(type="log")
        await mail.put(durable=True)
        assert await log.append({"data": 1}, {"data": 2}, {"data": 3})
        await mail.append({"data": "acked"}, {"data": "held"}, {"data": "waiting"})
        held = (await mail.claim("w", max=2))["claimed"][1]
        await mail.ack("w", [1])
        await run(second, "pg_dump", "--format=custom", f"--dbname={first.url}", f"--file={dump}")
        await log.append({"data": 4}, {"data": 5})
        cursor = (await log.post("diff", from_seq=3))["next_from_seq"]
        await mail.append({"data": "lost"})
        late = (await mail.claim("w", max=9))["claimed"][-1]
    assert (cursor, late["$seq"], late["data"]) == (5, 4, "lost")

    # The queue is as it was: what was acked stays so, what was held is held, what waits is claimed.
    jumped = Services(serve, await restored(second, dump, "jumped", jumps=True))
    async with client(await jumped.start()) as http:
        log, mail = Topic(http, "visits"), Topic(http, "mail")
        assert await mail.counts() == (1, 1)
        assert (await mail.ack("w", [2], lease_ids=[held["lease_id"]]))["acked"] == 1
        assert (await mail.take("w"))["data"] == "waiting"
        # Numbers that were given out later are nobody's: the reader misses nothing, and the worker settles nothing.
        [seq] = await mail.add(1)
        assert (await mail.take("w"))["$seq"] == seq > 1_000_000
        assert (await mail.ack("w", [late["$seq"]]))["skipped"] == [late["$seq"]]
        assert data(await log.post("diff")) == [1, 2, 3]
        assert (await log.post("diff", from_seq=cursor))["records"] == []
        await log.append({"data": "new"}, {"data": "newer"})
        told = await log.post("diff", from_seq=cursor)
        assert (data(told), told["tombstone"], told["caught_up"]) == (["new", "newer"], None, True)

    # Without the jump the reader is told, as long as the log is behind it; and then it misses what the page says.
    plain = Services(serve, await restored(second, dump, "plain", jumps=False))
    async with client(await plain.start()) as http:
        log, mail = Topic(http, "visits"), Topic(http, "mail")
        told = await log.post("diff", from_seq=cursor)
        assert (told["tombstone"]["reason"], data(told)) == ("recreated", [1, 2, 3])
        await log.append(*({"data": f"new {n}"} for n in range(3)))
        assert data(await log.post("diff", from_seq=cursor)) == ["new 2"]
        assert await mail.add(1) == [late["$seq"]], "it is another job's"
