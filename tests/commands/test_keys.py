"""`python -m app keys` as an operator and their scripts meet it."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.api.dialect import accepted, eventually
from tests.api.keyring import Services, bearer, client

if TYPE_CHECKING:
    from tests.conftest import Running

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True)
class Ended:
    code: int
    out: str
    err: str


async def run(url: str, *words: str, **settings: str) -> Ended:
    """`keys` with these words on a database."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "app", "keys", *words),
        cwd=ROOT,
        env=clean | {"HOLDFAST_DATABASE_URL": url} | settings,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode is not None
    assert b"Traceback" not in err, err.decode()
    return Ended(process.returncode, out.decode(), err.decode())


@pytest.fixture(scope="module")
async def services(serve: Callable[..., Awaitable[Running]], new_database: Callable[[], Awaitable[str]]) -> Services:
    return await Services.make(serve, new_database)


async def test_a_keys_whole_life(services: Services) -> None:
    assert (await run(services.url, "list")).out == ""
    words = ("--scopes", "rw+admin", "--prefixes", "mail.|post.", "--expires-in", "90d")
    made = await run(services.url, "add", "mail workers", *words)
    assert made.code == 0, made.err
    assert re.fullmatch(r"hf_\S{43}\n", made.out), "the secret, and nothing else"
    assert made.out.strip() not in made.err
    assert "the first key" in made.err
    (key_id,) = re.findall(r"key_[0-9a-f]{16}", made.err)
    listed = (await run(services.url, "list")).out
    assert re.search(rf"{key_id}\s+live\s+read\+write\+admin\s+mail\.\|post\.\s.*\smail workers$", listed, re.MULTILINE)
    rotated = await run(services.url, "rotate", key_id, "--grace", "1h")
    assert "is good until" in rotated.err
    service = await services.start()
    async with client(service) as http:
        for secret in (made.out, rotated.out):
            assert (await http.get("/v0/keys", headers=bearer(secret.strip()))).status_code == 200
        entries = accepted(await http.get("/v0/keys", headers=bearer(made.out.strip())))["keys"]
        assert [(key["name"], key["created_by"]) for key in entries] == [("mail workers", "command line")]
        assert (await run(services.url, "revoke", key_id)).code == 0
        # Without Redis the service hears nothing; what it has heard of, it drops when it loads again.
        await service.context.access.directory.reload()
        assert (await http.get("/v0/keys", headers=bearer(rotated.out.strip()))).status_code == 401
    actors = await services.sql("SELECT actor, action FROM holdfast.audit WHERE subject = $1 ORDER BY id", key_id)
    assert [tuple(row) for row in actors] == [
        ("command line", action) for action in ("key.made", "key.rotated", "key.revoked")
    ]
    again = await run(services.url, "rotate", key_id)
    assert (again.code, again.out) == (1, "")
    assert again.err.endswith("holdfast: This key is revoked: make another one.\n")


async def test_a_key_for_a_tenant(services: Services) -> None:
    made = await run(services.url, "add", "acme's", "--scopes", "rw", "--tenant", "acme")
    assert made.code == 0
    listed = (await run(services.url, "list")).out
    assert re.search(r"key_\w+\s+live\s+read\+write\s+\(every topic\)\s+'acme'\s", listed)
    refused = await run(services.url, "add", "k", "--scopes", "rw+admin", "--tenant", "acme")
    assert (refused.code, refused.out) == (1, "")
    assert "read and write only" in refused.err


async def test_a_service_that_runs_takes_a_new_key_at_its_first_use(services: Services) -> None:
    service = await services.start(api_keys="root")
    made = await run(services.url, "add", "later", "--scopes", "read")
    async with client(service) as http:

        async def known() -> bool:
            return (await http.get("/v0/topics", headers=bearer(made.out.strip()))).status_code == 200

        await eventually(known, 5)


@pytest.mark.parametrize(
    ("words", "code", "why"),
    [
        (["add", "k"], 2, "--scopes"),
        (["add", "k", "--scopes", "fly"], 2, "'fly' is no scope"),
        (["add", "k", "--scopes", ""], 1, "scopes must name"),
        (["add", "", "--scopes", "read"], 1, "name must be"),
        (["add", "k", "--scopes", "read", "--prefixes", "a b"], 1, "not how a topic's name can start"),
        (["add", "k", "--scopes", "read", "--expires-in", "soon"], 2, "is no time"),
        (["rotate", "key_0000000000000000", "--grace", "8d"], 2, "between"),
        (["rotate", "key_0000000000000000"], 1, "no such key"),
        (["revoke", "x"], 1, "no such key"),
        (["paint"], 2, "paint"),
        ([], 2, "command"),
    ],
)
async def test_nonsense_is_explained(services: Services, words: list[str], code: int, why: str) -> None:
    ended = await run(services.url, *words)
    assert (ended.code, ended.out) == (code, "")
    assert why in ended.err


async def test_help_names_the_commands_and_their_options(services: Services) -> None:
    ended = await run(services.url, "--help")
    assert ended.code == 0
    assert all(word in ended.out for word in ("add", "list", "rotate", "revoke", "HOLDFAST_DATABASE_URL"))
    assert "--expires-in" in (await run(services.url, "add", "--help")).out


async def test_a_database_without_tables_and_none_at_all_are_one_line(
    empty_database: Callable[[], Awaitable[str]], services: Services
) -> None:
    empty = await run(await empty_database(), "list")
    assert (empty.code, empty.err.splitlines()[-1][:10]) == (2, "holdfast: ")
    assert "run `migrate` first" in empty.err
    away = await run("postgresql://u:topsecret@127.0.0.1:1/x", "list")
    assert (away.code, away.err.count("\n")) == (2, 1)
    assert "can't be reached" in away.err
    assert "topsecret" not in away.err


async def test_a_redis_that_is_away_is_said_and_stops_nothing(services: Services) -> None:
    made = await run(services.url, "add", "k", "--scopes", "read", HOLDFAST_REDIS_URL="redis://127.0.0.1:1/0")
    assert made.code == 0
    assert made.out.startswith("hf_")
    assert "within 30 s" in made.err
