"""`python -m app users` as an operator and their scripts meet it."""

from __future__ import annotations

import asyncio
import os
import pty
import re
import sys
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import pytest

from tests.api.keyring import Services, client
from tests.api.people import PASSWORD, basic
from tests.commands.test_keys import ROOT, Ended

if TYPE_CHECKING:
    from tests.conftest import Running

OTHER = "another long password"


def environment(url: str, **settings: str) -> dict[str, str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
    return clean | {"HOLDFAST_DATABASE_URL": url, "HOLDFAST_BCRYPT_COST": "10"} | settings


async def run(url: str, *words: str, stdin: str = "", **settings: str) -> Ended:
    """`users` with these words on a database, and this on its stdin."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "app", "users", *words),
        cwd=ROOT,
        env=environment(url, **settings),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await asyncio.wait_for(process.communicate(stdin.encode()), 60)
    assert process.returncode is not None
    assert b"Traceback" not in err, err.decode()
    return Ended(process.returncode, out.decode(), err.decode())


@pytest.fixture(scope="module")
async def services(serve: Callable[..., Awaitable[Running]], new_database: Callable[[], Awaitable[str]]) -> Services:
    return await Services.make(serve, new_database)


async def test_a_users_whole_life(services: Services) -> None:
    assert (await run(services.url, "list")).out == ""
    made = await run(services.url, "add", "boss", "--admin", stdin=f"{PASSWORD}\n")
    assert (made.code, made.out) == (0, ""), made.err
    assert "the first user" in made.err
    assert PASSWORD not in made.err
    assert (await run(services.url, "add", "ann", stdin=f"{PASSWORD}\r\n")).code == 0
    for words in (("read", "mail.*"), ("write",)):
        assert (await run(services.url, "grant", "ann", *words)).code == 0
    listed = (await run(services.url, "list")).out
    assert re.search(r"^[0-9a-f-]{36}  boss +\d{4}-\S+ \S+  everything \(admin\)$", listed, re.MULTILINE)
    assert re.search(r"^[0-9a-f-]{36}  ann +\d{4}-\S+ \S+  read mail\.\*, write \*$", listed, re.MULTILINE)
    service = await services.start()
    async with client(service) as http:
        for name, status in (("boss", 200), ("ann", 403)):
            assert (await http.get("/v0/admin/horizon", headers=basic(name))).status_code == status
        assert (await run(services.url, "passwd", "boss", stdin=OTHER)).code == 0
        assert (await run(services.url, "revoke", "ann", "read", "mail.*")).code == 0
        assert (await run(services.url, "delete", "ann")).code == 0
        # Without Redis the service hears nothing; what it has heard of, it drops when it loads again.
        await service.context.access.directory.reload()
        assert (await http.get("/v0/topics", headers=basic("boss"))).status_code == 401
        assert (await http.get("/v0/topics", headers=basic("boss", OTHER))).status_code == 200
        assert (await http.get("/v0/topics", headers=basic("ann"))).status_code == 401
    rows = await services.sql("SELECT DISTINCT actor FROM holdfast.audit")
    assert [row["actor"] for row in rows] == ["command line"]


@pytest.mark.parametrize(
    ("words", "stdin", "code", "why"),
    [
        (["add", "u"], "", 1, "at least 12"),
        (["add", "u"], "eleven char", 1, "at least 12"),
        (["add", "u"], "x" * 73, 1, "at most 72 bytes"),
        (["add", "a:b"], PASSWORD, 1, "without a colon"),
        (["add", ""], PASSWORD, 1, "username must be"),
        (["add", "u", "--password", "p"], "", 2, "--password"),
        (["add", "u", PASSWORD], "", 2, "unrecognized"),
        (["passwd", "nobody"], PASSWORD, 1, "no user 'nobody'"),
        (["delete", "nobody"], "", 1, "no user 'nobody'"),
        (["grant", "nobody", "read"], "", 1, "no user 'nobody'"),
        (["grant", "nobody", "fly"], "", 2, "fly"),
        (["paint"], "", 2, "paint"),
        ([], "", 2, "command"),
    ],
)
async def test_nonsense_is_explained(services: Services, words: list[str], stdin: str, code: int, why: str) -> None:
    ended = await run(services.url, *words, stdin=stdin)
    assert (ended.code, ended.out) == (code, "")
    assert why in ended.err


async def test_what_there_is_already_and_what_is_not_granted(services: Services) -> None:
    assert (await run(services.url, "add", "twice", stdin=PASSWORD)).code == 0
    assert "already" in (await run(services.url, "add", "twice", stdin=PASSWORD)).err
    assert "a start of names" in (await run(services.url, "grant", "twice", "read", "mail*")).err
    assert "no grant of read on mail" in (await run(services.url, "revoke", "twice", "read", "mail")).err


async def test_help_names_the_commands_and_how_a_password_is_given(services: Services) -> None:
    ended = await run(services.url, "--help")
    assert ended.code == 0
    words = ("add", "list", "passwd", "delete", "grant", "revoke", "HOLDFAST_DATABASE_URL", "stdin")
    assert all(word in ended.out for word in words)
    assert "mail.*" in (await run(services.url, "grant", "--help")).out


def test_at_a_terminal_it_asks_twice_and_shows_nothing(services: Services) -> None:
    for again, code in ((PASSWORD, 0), (OTHER, 1)):
        pid, terminal = pty.fork()
        if pid == 0:
            os.chdir(ROOT)
            words = [sys.executable, "-m", "app", "users", "add", f"typed-{code}"]
            os.execve(sys.executable, words, environment(services.url))
        shown = b""
        for prompt, answer in ((b"Password of", PASSWORD), (b"Again", again)):
            while prompt not in shown:
                shown += os.read(terminal, 1_000)
            os.write(terminal, answer.encode() + b"\n")
        try:
            while more := os.read(terminal, 1_000):
                shown += more
        except OSError:
            pass  # the other end is closed
        _, status = os.waitpid(pid, 0)
        assert os.waitstatus_to_exitcode(status) == code, shown
        assert PASSWORD.encode() not in shown
        assert (b"not the same" in shown) == (code == 1)
        os.close(terminal)
