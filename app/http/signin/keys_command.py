"""`keys`: API keys made, listed, rotated and revoked in the database itself, whether or not a service runs."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import asyncpg

from app.base.db.pool import REST_TIMEOUTS
from app.base.keys import HIDDEN, Scope, scopes_of
from app.base.times import UNITS_MS, parse_length
from app.errors import HoldfastError
from app.http.signin import store
from app.http.signin.store import Asked, Changer, Kept
from app.kernel.audit import trail
from app.kernel.topics import bus
from app.kernel.topics.settings import SEVEN_DAYS_MS, TEN_YEARS_MS

if TYPE_CHECKING:
    from app.base.db.pool import Pool

_END: Final = (datetime.max.replace(tzinfo=UTC), "")
_PAGE: Final = 500
_BY: Final = Changer(trail.COMMAND_LINE)


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """The command's words. Exits with 2 and a usage line for what makes no sense, and with 0 after --help."""
    parser = argparse.ArgumentParser(
        prog="python -m app keys",
        description="Make, list, rotate and revoke API keys. They are kept in the database, a secret as its SHA-256"
        " only. From the first key on, every route needs one.",
        epilog="Works on the database of HOLDFAST_DATABASE_URL, else on the embedded one, which is started for the"
        " moment if it does not run. Running services notice within 30 s, and at once where HOLDFAST_REDIS_URL is set.",
    )
    commands = parser.add_subparsers(dest="verb", required=True, metavar="command")

    def add(name: str, text: str) -> argparse.ArgumentParser:
        return commands.add_parser(name, help=text, description=text)

    made = add("add", "Make a key, and print its secret, which is not shown again.")
    made.add_argument("name", help="what the key is for, up to 128 bytes")
    made.add_argument("--scopes", required=True, type=_scopes, help="read, write, delete, admin or rw, joined by '+'")
    made.add_argument(
        "--prefixes", default=(), type=_prefixes, help="starts of topics' names, joined by '|'; every topic if left out"
    )
    made.add_argument(
        "--expires-in", type=_duration(TEN_YEARS_MS), metavar="TIME", help="such as 90d or 12h; never if left out"
    )
    made.add_argument("--tenant", help="whose jobs it is for, and no others; all tenants' if left out")
    made.add_argument(
        "--hide-payloads", action="store_true", help="it sees jobs and not what is in them, and takes none"
    )
    add("list", "List all keys, the newest first, without their secrets.")
    rotated = add("rotate", "Give a key another secret, and print it.")
    rotated.add_argument("id", help="key_…, as `keys list` shows it")
    rotated.add_argument(
        "--grace", default=0, type=_duration(SEVEN_DAYS_MS), metavar="TIME",
        help="how long the secret before stays good, such as 1h, up to 7d; not at all if left out",
    )  # fmt: skip
    revoked = add("revoke", "Revoke a key for good. It stays in the list.")
    revoked.add_argument("id", help="key_…, as `keys list` shows it")
    return parser.parse_args(argv)


async def run(url: str, redis_url: str | None, args: argparse.Namespace) -> int:
    """Do it on a database with the current schema: the exit code, 1 for a refusal, which is explained on stderr.

    A secret is alone on stdout, so that a script can take it.
    """
    verbs: dict[str, Callable[[Pool, argparse.Namespace], Awaitable[None]]] = {
        "add": _add,
        "list": _list,
        "rotate": _rotate,
        "revoke": _revoke,
    }
    settings = {"application_name": "holdfast keys", "timezone": "UTC", "search_path": "pg_catalog", **REST_TIMEOUTS}
    pool = await asyncpg.create_pool(url, min_size=1, max_size=1, statement_cache_size=0, server_settings=settings)
    try:
        await verbs[args.verb](pool, args)
    except HoldfastError as error:
        _say(f"holdfast: {error.message}")
        return 1
    finally:
        await pool.close()
    if args.verb != "list" and redis_url is not None and not await bus.announce_keys(redis_url):
        _say("Redis does not answer: running services notice within 30 s.")
    return 0


async def _add(pool: Pool, args: argparse.Namespace) -> None:
    asked = Asked(args.name, args.scopes, args.prefixes, args.expires_in, args.tenant, args.hide_payloads)
    first = not await store.page(pool, _END, 1, _BY)
    kept, secret = await store.create(pool, asked, _BY)
    print(secret)
    _say(f"Made {kept.id}. Its secret is the line on stdout, and is not shown again.")
    if first:
        _say("It is the first key: from now on every route needs one.")
    if first and Scope.ADMIN not in kept.scopes:
        _say("It has not the scope admin, so only this command can make further keys.")


async def _list(pool: Pool, _args: argparse.Namespace) -> None:
    rows: list[tuple[str, ...]] = [
        ("ID", "STATE", "SCOPES", "PREFIXES", "TENANT", "PAYLOADS", "MADE", "EXPIRES", "NAME")
    ]
    before = _END
    while found := await store.page(pool, before, _PAGE, _BY):
        rows += [_row(kept) for kept in found]
        before = (found[-1].created_at, found[-1].id)
    if len(rows) == 1:
        _say("There are no keys in the database.")
        return
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]) - 1)]
    for row in rows:
        print("  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[-1]]))


async def _rotate(pool: Pool, args: argparse.Namespace) -> None:
    kept, secret = await store.rotate(pool, args.id, args.grace, _BY)
    print(secret)
    until = f"is good until {_minute(kept.old_until)} UTC" if kept.old_until else "is good no more"
    _say(f"Rotated {kept.id} ({kept.name}). The secret before {until}.")


async def _revoke(pool: Pool, args: argparse.Namespace) -> None:
    kept = await store.revoke(pool, args.id, _BY)
    _say(f"Revoked {kept.id} ({kept.name}).")


def _row(kept: Kept) -> tuple[str, ...]:
    scopes, prefixes = "+".join(kept.scopes.words), "|".join(kept.prefixes) or "(every topic)"
    made, expires = _minute(kept.created_at), _minute(kept.expires_at) if kept.expires_at else "never"
    tenant = "(all)" if kept.tenant is None else ascii(kept.tenant)
    payloads = HIDDEN if kept.hides_payloads else "shown"
    return (kept.id, kept.state.value, scopes, prefixes, tenant, payloads, made, expires, kept.name)


def _minute(time: datetime) -> str:
    return f"{time.astimezone(UTC):%Y-%m-%d %H:%M}"


def _say(text: str) -> None:
    print(text, file=sys.stderr)


def _scopes(text: str) -> Scope:
    try:
        return scopes_of(filter(None, text.split("+")))
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _prefixes(text: str) -> tuple[str, ...]:
    return tuple(filter(None, text.split("|")))


def _duration(most_ms: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        value = parse_length(text)
        if value is None:
            raise argparse.ArgumentTypeError(f"{text!r} is no time: write a number and ms, s, m, h or d, such as 90d")
        if not 0 < value <= most_ms:
            raise argparse.ArgumentTypeError(f"{text} is not between 1ms and {most_ms // UNITS_MS['d']}d")
        return value

    return parse
