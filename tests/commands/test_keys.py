"""`python -m app keys` as an operator and their scripts meet it."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable

from tests.api.dialect import accepted, eventually
from tests.api.keyring import Services, bearer, client
from tests.commands.conftest import Run, run_process


async def test_a_keys_whole_life(services: Services, run: Run) -> None:
    assert (await run("keys", "list")).out == ""
    words = ("--scopes", "rw+admin", "--prefixes", "mail.|post.", "--expires-in", "90d")
    made = await run_process(services.url, "keys", "add", "mail workers", *words)
    assert made.code == 0, made.err
    assert re.fullmatch(r"hf_\S{43}\n", made.out), "the secret, and nothing else"
    assert made.out.strip() not in made.err
    assert "the first key" in made.err
    (key_id,) = re.findall(r"key_[0-9a-f]{16}", made.err)
    listed = (await run("keys", "list")).out
    assert re.search(rf"{key_id}\s+live\s+read\+write\+admin\s+mail\.\|post\.\s.*\smail workers$", listed, re.MULTILINE)
    rotated = await run("keys", "rotate", key_id, "--grace", "1h")
    assert "stays valid until" in rotated.err
    service = await services.start()
    async with client(service) as http:
        for secret in (made.out, rotated.out):
            assert (await http.get("/v0/keys", headers=bearer(secret.strip()))).status_code == 200
        entries = accepted(await http.get("/v0/keys", headers=bearer(made.out.strip())))["keys"]
        assert [(key["name"], key["created_by"]) for key in entries] == [("mail workers", "command line")]

        # A service that runs takes a new key at its first use.
        later = await run("keys", "add", "later", "--scopes", "read")

        async def known() -> bool:
            return (await http.get("/v0/topics", headers=bearer(later.out.strip()))).status_code == 200

        await eventually(known)

        assert (await run("keys", "revoke", key_id)).code == 0
        # Without Redis the service hears nothing; what it has heard of, it drops when it loads again.
        await service.context.access.directory.reload()
        assert (await http.get("/v0/keys", headers=bearer(rotated.out.strip()))).status_code == 401
    actors = await services.sql("SELECT actor, action FROM holdfast.audit WHERE subject = $1 ORDER BY id", key_id)
    assert [tuple(row) for row in actors] == [
        ("command line", action) for action in ("key.made", "key.rotated", "key.revoked")
    ]
    again = await run("keys", "rotate", key_id)
    assert (again.code, again.out) == (1, "")
    assert again.err.endswith("holdfast: This key is revoked. Make a new one.\n")


async def test_a_key_for_a_tenant(run: Run) -> None:
    assert (await run("keys", "add", "acme's", "--scopes", "rw", "--tenant", "acme")).code == 0
    listed = (await run("keys", "list")).out
    assert re.search(r"key_\w+\s+live\s+read\+write\s+\(every topic\)\s+'acme'\s", listed)
    refused = await run("keys", "add", "k", "--scopes", "rw+admin", "--tenant", "acme")
    assert (refused.code, refused.out) == (1, "")
    assert "only the scopes read and write" in refused.err


async def test_a_database_without_tables_and_none_at_all_are_one_line(
    empty_database: Callable[[], Awaitable[str]],
) -> None:
    empty = await run_process(await empty_database(), "keys", "list")
    assert (empty.code, empty.err.splitlines()[-1][:10]) == (2, "holdfast: ")
    assert "run `migrate` first" in empty.err
    away = await run_process("postgresql://u:topsecret@127.0.0.1:1/x", "keys", "list")
    assert (away.code, away.err.count("\n")) == (2, 1)
    assert "can't be reached" in away.err
    assert "topsecret" not in away.err


async def test_a_redis_that_is_away_is_said_and_stops_nothing(run: Run) -> None:
    made = await run("keys", "add", "k", "--scopes", "read", redis_url="redis://127.0.0.1:1/0")
    assert made.code == 0
    assert made.out.startswith("hf_")
    assert "within 30 s" in made.err
