"""`users`: users and their grants made, listed, changed and deleted in the database itself, whether or not a service
runs."""

from __future__ import annotations

import argparse
import getpass
import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Final

import asyncpg

from app.base.db.pool import REST_TIMEOUTS
from app.errors import HoldfastError, InvalidRequest, NotFound
from app.http.signin import passwords, users
from app.http.signin.passwords import LEAST_CHARACTERS, MOST_BYTES, Passwords
from app.http.signin.people import EVERYTHING, Right
from app.http.signin.store import Changer
from app.http.signin.users import Grant
from app.kernel.audit import trail
from app.kernel.topics import bus

if TYPE_CHECKING:
    from app.base.db.pool import Pool

_PAGE: Final = 500
_BY: Final = Changer(trail.COMMAND_LINE)
_PATTERN: Final = "* for every topic, mail.* for those whose names start so, or a topic's name; every topic if left out"


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """The command's words. Exits with 2 and a usage line for what makes no sense, and with 0 after --help."""
    parser = argparse.ArgumentParser(
        prog="python -m app users",
        description="Make, list, change and delete users and what is granted to them. They are kept in the database, a"
        " password as its bcrypt hash only. From the first user on, every route needs sign-in. A password is asked for,"
        " twice; where there is no terminal it is the first line of stdin. It is never an argument: those are seen by"
        f" all on the machine. It has {LEAST_CHARACTERS} characters or more, and {MOST_BYTES} bytes at most.",
        epilog="Works on the database of HOLDFAST_DATABASE_URL, else on the embedded one, which is started for the"
        " moment if it does not run. Running services notice within 30 s, and at once where HOLDFAST_REDIS_URL is set."
        " HOLDFAST_BCRYPT_COST sets how long a hash takes.",
    )
    commands = parser.add_subparsers(dest="verb", required=True, metavar="command")

    def add(name: str, text: str, *words: str) -> argparse.ArgumentParser:
        command = commands.add_parser(name, help=text, description=text)
        for word in words:
            command.add_argument(word, metavar="NAME", help="the user's name")
        return command

    made = add("add", "Make a user, with a password from a prompt or stdin.", "name")
    made.add_argument("--admin", action="store_true", help="may do everything; the first user should be one")
    add("list", "List all users by name, with what is granted to them.")
    add("passwd", "Give a user another password, which ends all their tokens.", "name")
    add("delete", "Delete a user, with what was granted to them.", "name")
    for name, text in (("grant", "Grant a user an action in some topics."), ("revoke", "Take a grant back.")):
        granted = add(name, text, "name")
        granted.add_argument("action", choices=[right.value for right in Right], help="write includes consume")
        granted.add_argument("pattern", nargs="?", default=EVERYTHING, metavar="PATTERN", help=_PATTERN)
        if name == "grant":
            granted.add_argument(
                "--hide-payloads", action="store_true", help="without seeing what is in jobs, nor taking them"
            )
    return parser.parse_args(argv)


async def run(url: str, redis_url: str | None, cost: int, args: argparse.Namespace) -> int:
    """Do it on a database with the current schema: the exit code, 1 for a refusal, which is explained on stderr.

    `cost`: of new hashes, as HOLDFAST_BCRYPT_COST.
    """
    verbs: dict[str, Callable[[Pool, argparse.Namespace, Passwords], Awaitable[None]]] = {
        "add": _add,
        "list": _list,
        "passwd": _passwd,
        "delete": _delete,
        "grant": _grant,
        "revoke": _revoke,
    }
    settings = {"application_name": "holdfast users", "timezone": "UTC", "search_path": "pg_catalog", **REST_TIMEOUTS}
    pool = await asyncpg.create_pool(url, min_size=1, max_size=1, statement_cache_size=0, server_settings=settings)
    try:
        await verbs[args.verb](pool, args, Passwords(cost))
    except HoldfastError as error:
        _say(f"holdfast: {error.message}")
        return 1
    finally:
        await pool.close()
    if args.verb != "list" and redis_url is not None and not await bus.announce_keys(redis_url):
        _say("Redis does not answer: running services notice within 30 s.")
    return 0


async def _add(pool: Pool, args: argparse.Namespace, hashes: Passwords) -> None:
    users.check_name(args.name)
    if await users.find(pool, args.name) is not None:
        raise InvalidRequest(f"There is a user {args.name!r} already.")
    first = not await users.page(pool, "", 1)
    hashed = await hashes.hash(_password(args.name))
    account = await users.create(pool, args.name, hashed, _BY, is_admin=args.admin)
    _say(f"Made {account.username} ({account.id}){', an admin' if account.is_admin else ''}.")
    if first:
        _say("It is the first user: from now on every route needs sign-in.")
    if first and not account.is_admin:
        _say("It is no admin, so without a key only this command can make others or grant anything.")


async def _list(pool: Pool, _args: argparse.Namespace, _hashes: Passwords) -> None:
    rows = [("ID", "NAME", "MADE", "MAY")]
    after = ""
    while found := await users.page(pool, after, _PAGE):
        for account in found:
            granted = [_words(grant) for grant in await users.grants(pool, account.id)]
            may = "everything (admin)" if account.is_admin else ", ".join(granted) or "nothing yet"
            rows.append((account.id, account.username, f"{account.created_at:%Y-%m-%d %H:%M}", may))
        after = found[-1].username
    if len(rows) == 1:
        _say("There are no users.")
        return
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    for row in rows:
        print("  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[-1]]))


async def _passwd(pool: Pool, args: argparse.Namespace, hashes: Passwords) -> None:
    user_id = await _id_of(pool, args.name)
    hashed = await hashes.hash(_password(args.name))
    await users.change(pool, user_id, _BY, password_hash=hashed)
    _say(f"{args.name} has another password. Tokens of the one before are good no more.")


async def _delete(pool: Pool, args: argparse.Namespace, _hashes: Passwords) -> None:
    await users.delete(pool, await _id_of(pool, args.name), _BY)
    _say(f"Deleted {args.name}.")


async def _grant(pool: Pool, args: argparse.Namespace, _hashes: Passwords) -> None:
    user_id, hides = await _id_of(pool, args.name), args.hide_payloads
    made = await users.grant(pool, user_id, Right(args.action), args.pattern, _BY, hides_payloads=hides)
    _say(f"{args.name} may {_words(made)}.")


async def _revoke(pool: Pool, args: argparse.Namespace, _hashes: Passwords) -> None:
    user_id = await _id_of(pool, args.name)
    for grant in await users.grants(pool, user_id):
        if (grant.action.value, grant.topic_pattern) == (args.action, args.pattern):
            await users.revoke(pool, user_id, grant.id, _BY)
            _say(f"{args.name} may no more {args.action} in {args.pattern}.")
            return
    raise NotFound(f"{args.name} has no grant of {args.action} on {args.pattern}; `users list` shows them.")


async def _id_of(pool: Pool, name: str) -> str:
    found = await users.find(pool, name)
    if found is None:
        raise NotFound(f"There is no user {name!r}.")
    return found.id


def _words(grant: Grant) -> str:
    hidden = " (payloads hidden)" if grant.hides_payloads else ""
    return f"{grant.action.value} {grant.topic_pattern}{hidden}"


def _password(name: str) -> str:
    """From a prompt, else the first line of stdin. Raises InvalidRequest."""
    if not sys.stdin.isatty():
        password = sys.stdin.readline().rstrip("\r\n")
        passwords.check(password)
        return password
    password = getpass.getpass(f"Password of {name}: ")
    passwords.check(password)
    if getpass.getpass("Again: ") != password:
        raise InvalidRequest("The two are not the same.")
    return password


def _say(text: str) -> None:
    print(text, file=sys.stderr)
