"""`python -m app users` as an operator and their scripts meet it."""

from __future__ import annotations

import os
import pty
import re
import sys

from tests.api.keyring import Services, client
from tests.api.people import PASSWORD, basic
from tests.commands.conftest import ROOT, Run, environment, run_process

OTHER = "another long password"


async def test_a_users_whole_life(services: Services, run: Run) -> None:
    assert (await run("users", "list")).out == ""
    made = await run_process(services.url, "users", "add", "boss", "--admin", stdin=f"{PASSWORD}\n")
    assert (made.code, made.out) == (0, ""), made.err
    assert "the first user" in made.err
    assert PASSWORD not in made.err
    assert (await run("users", "add", "ann", stdin=f"{PASSWORD}\r\n")).code == 0
    for words in (("read", "mail.*"), ("write",)):
        assert (await run("users", "grant", "ann", *words)).code == 0
    listed = (await run("users", "list")).out
    assert re.search(r"^[0-9a-f-]{36}  boss +\d{4}-\S+ \S+  everything \(admin\)$", listed, re.MULTILINE)
    assert re.search(r"^[0-9a-f-]{36}  ann +\d{4}-\S+ \S+  read mail\.\*, write \*$", listed, re.MULTILINE)
    service = await services.start()
    async with client(service) as http:
        for name, status in (("boss", 200), ("ann", 403)):
            assert (await http.get("/v0/admin/horizon", headers=basic(name))).status_code == status
        assert (await run("users", "passwd", "boss", stdin=OTHER)).code == 0
        assert (await run("users", "revoke", "ann", "read", "mail.*")).code == 0
        assert (await run("users", "delete", "ann")).code == 0
        # Without Redis the service hears nothing; what it has heard of, it drops when it loads again.
        await service.context.access.directory.reload()
        assert (await http.get("/v0/topics", headers=basic("boss"))).status_code == 401
        assert (await http.get("/v0/topics", headers=basic("boss", OTHER))).status_code == 200
        assert (await http.get("/v0/topics", headers=basic("ann"))).status_code == 401
    rows = await services.sql("SELECT DISTINCT actor FROM holdfast.audit")
    assert [row["actor"] for row in rows] == ["command line"]


async def test_what_there_is_already_and_what_is_not_granted(run: Run) -> None:
    assert (await run("users", "add", "twice", stdin=PASSWORD)).code == 0
    assert "already" in (await run("users", "add", "twice", stdin=PASSWORD)).err
    assert "a prefix and" in (await run("users", "grant", "twice", "read", "mail*")).err
    assert "no grant of read on mail" in (await run("users", "revoke", "twice", "read", "mail")).err


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
        assert (b"passwords don't match" in shown) == (code == 1)
        os.close(terminal)
