"""The commands `keys` and `users`. They change the database directly, whether or not a service runs."""

from __future__ import annotations

import argparse
import getpass
import sys
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import asyncpg

from app.base.db.pool import REST_TIMEOUTS
from app.base.keys import HIDDEN, Scope, scopes_of
from app.base.times import UNITS_MS, parse_length
from app.errors import HoldfastError, InvalidRequest, NotFound
from app.http.signin import api_keys, users
from app.http.signin.api_keys import Changer, NewKey, StoredKey
from app.http.signin.people import EVERYTHING, Right
from app.http.signin.users import LEAST_CHARACTERS, MOST_PASSWORD_BYTES, Grant, Passwords
from app.kernel.audit import trail
from app.kernel.topics import bus
from app.kernel.topics.settings import SEVEN_DAYS_MS, TEN_YEARS_MS

if TYPE_CHECKING:
    from app.base.db.pool import Pool

Command = Callable[["Pool", argparse.Namespace], Awaitable[None]]

_PAGE: Final = 500
_BY: Final = Changer(trail.COMMAND_LINE)
_PATTERN: Final = "* for every topic, mail.* for topics that start with mail., or a topic's name (default: every topic)"
_DATABASE: Final = (
    "Uses the database of HOLDFAST_DATABASE_URL, else the embedded one, which is started if necessary. Running"
    " services notice a change within 30 s, with HOLDFAST_REDIS_URL at once."
)


def parse(name: str, argv: Sequence[str]) -> argparse.Namespace:
    """Parse the arguments after `keys` or `users`. Exits with 2 for a usage error, and with 0 after --help."""
    return (_keys_parser if name == "keys" else _users_parser)().parse_args(argv)


async def run(name: str, url: str, redis_url: str | None, bcrypt_cost: int, args: argparse.Namespace) -> int:
    """Run a command of `keys` or `users` on a database with the current schema. Returns the exit code, 1 after an
    error, which is printed to stderr. A secret is the only output on stdout, for scripts."""
    args.passwords = Passwords(bcrypt_cost)
    settings = {"application_name": f"holdfast {name}", "timezone": "UTC", "search_path": "pg_catalog", **REST_TIMEOUTS}
    pool = await asyncpg.create_pool(url, min_size=1, max_size=1, statement_cache_size=0, server_settings=settings)
    try:
        await (_KEYS if name == "keys" else _USERS)[args.verb](pool, args)
    except HoldfastError as error:
        _say(f"holdfast: {error.message}")
        return 1
    finally:
        await pool.close()
    if args.verb != "list" and redis_url is not None and not await bus.announce_keys(redis_url):
        _say("Redis does not answer. Running services notice the change within 30 s.")
    return 0


def _keys_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m app keys",
        description="Create, list, rotate and revoke API keys. The database stores only the SHA-256 of a secret. Once"
        " there is a key, every route needs one.",
        epilog=_DATABASE,
    )
    commands = parser.add_subparsers(dest="verb", required=True, metavar="command")

    def add(name: str, text: str) -> argparse.ArgumentParser:
        return commands.add_parser(name, help=text, description=text)

    made = add("add", "Create a key and print its secret, which is not shown again.")
    made.add_argument("name", help="a name that says what the key is for, up to 128 bytes")
    made.add_argument("--scopes", required=True, type=_scopes, help="read, write, delete, admin or rw, joined by '+'")
    made.add_argument(
        "--prefixes", default=(), type=_prefixes, help="prefixes of topics, joined by '|' (default: every topic)"
    )
    made.add_argument(
        "--expires-in", type=_duration(TEN_YEARS_MS), metavar="TIME", help="such as 90d or 12h (default: never)"
    )
    made.add_argument("--tenant", help="restrict the key to this tenant's jobs (default: all tenants)")
    made.add_argument(
        "--hide-payloads", action="store_true", help="the key sees jobs without their payloads and can't claim jobs"
    )
    add("list", "List all keys, newest first, without their secrets.")
    rotated = add("rotate", "Give a key a new secret and print it.")
    rotated.add_argument("id", help="key_…, as `keys list` shows it")
    rotated.add_argument(
        "--grace", default=0, type=_duration(SEVEN_DAYS_MS), metavar="TIME",
        help="how long the old secret stays valid, such as 1h, up to 7d (default: not at all)",
    )  # fmt: skip
    revoked = add("revoke", "Revoke a key for good. It stays in the list.")
    revoked.add_argument("id", help="key_…, as `keys list` shows it")
    return parser


def _users_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m app users",
        description="Create, list, change and delete users and their grants. The database stores only the bcrypt hash"
        " of a password. Once there is a user, every route needs sign-in. The command prompts for a password twice;"
        " without a terminal it reads the first line of stdin. A password is never an argument, since everyone on the"
        f" machine can see arguments. It must have at least {LEAST_CHARACTERS} characters and at"
        f" most {MOST_PASSWORD_BYTES} bytes.",
        epilog=f"{_DATABASE} HOLDFAST_BCRYPT_COST sets how long a hash takes.",
    )
    commands = parser.add_subparsers(dest="verb", required=True, metavar="command")

    def add(name: str, text: str, *words: str) -> argparse.ArgumentParser:
        command = commands.add_parser(name, help=text, description=text)
        for word in words:
            command.add_argument(word, metavar="NAME", help="the user's name")
        return command

    made = add("add", "Create a user, with a password from a prompt or stdin.", "name")
    made.add_argument("--admin", action="store_true", help="the user may do everything; the first user should be one")
    add("list", "List all users by name, with their grants.")
    add("passwd", "Give a user a new password. This ends all their tokens.", "name")
    add("delete", "Delete a user and their grants.", "name")
    for name, text in (("grant", "Grant a user an action in some topics."), ("revoke", "Revoke a grant.")):
        granted = add(name, text, "name")
        granted.add_argument("action", choices=[right.value for right in Right], help="write includes consume")
        granted.add_argument("pattern", nargs="?", default=EVERYTHING, metavar="PATTERN", help=_PATTERN)
        if name == "grant":
            granted.add_argument(
                "--hide-payloads", action="store_true", help="the user sees jobs without their payloads and can't claim"
            )
    return parser


async def _add_key(pool: Pool, args: argparse.Namespace) -> None:
    new = NewKey(args.name, args.scopes, args.prefixes, args.expires_in, args.tenant, args.hide_payloads)
    first = not await api_keys.page(pool, api_keys.NEWEST, 1, _BY)
    key, secret = await api_keys.create(pool, new, _BY)
    print(secret)
    _say(f"Made {key.id}. Its secret is the line on stdout. It is not shown again.")
    if first:
        _say("It is the first key. From now on every route needs one.")
    if first and Scope.ADMIN not in key.scopes:
        _say("It does not have the scope admin. Only this command can make more keys.")


async def _list_keys(pool: Pool, _args: argparse.Namespace) -> None:
    rows: list[tuple[str, ...]] = []
    before = api_keys.NEWEST
    while page := await api_keys.page(pool, before, _PAGE, _BY):
        rows += [_key_row(key) for key in page]
        before = (page[-1].created_at, page[-1].id)
    if not rows:
        _say("There are no keys in the database.")
        return
    _print_table(("ID", "STATE", "SCOPES", "PREFIXES", "TENANT", "PAYLOADS", "MADE", "EXPIRES", "NAME"), rows)


async def _rotate_key(pool: Pool, args: argparse.Namespace) -> None:
    key, secret = await api_keys.rotate(pool, args.id, args.grace, _BY)
    print(secret)
    until = f"stays valid until {_minute(key.old_until)} UTC" if key.old_until else "is no longer valid"
    _say(f"Rotated {key.id} ({key.name}). The old secret {until}.")


async def _revoke_key(pool: Pool, args: argparse.Namespace) -> None:
    key = await api_keys.revoke(pool, args.id, _BY)
    _say(f"Revoked {key.id} ({key.name}).")


async def _add_user(pool: Pool, args: argparse.Namespace) -> None:
    users.check_name(args.name)
    if await users.find(pool, args.name) is not None:
        raise InvalidRequest(f"A user named {args.name!r} already exists.")
    first = not await users.page(pool, "", 1)
    password_hash = await args.passwords.hash(_password(args.name))
    account = await users.create(pool, args.name, password_hash, _BY, is_admin=args.admin)
    _say(f"Made {account.username} ({account.id}){', an admin' if account.is_admin else ''}.")
    if first:
        _say("It is the first user. From now on every route needs sign-in.")
    if first and not account.is_admin:
        _say("It is not an admin. Without a key, only this command can make other users or grant anything.")


async def _list_users(pool: Pool, _args: argparse.Namespace) -> None:
    rows: list[tuple[str, ...]] = []
    after = ""
    while page := await users.page(pool, after, _PAGE):
        for account in page:
            words = [_grant_words(grant) for grant in await users.grants(pool, account.id)]
            may = "everything (admin)" if account.is_admin else ", ".join(words) or "nothing yet"
            rows.append((account.id, account.username, _minute(account.created_at), may))
        after = page[-1].username
    if not rows:
        _say("There are no users.")
        return
    _print_table(("ID", "NAME", "MADE", "MAY"), rows)


async def _change_password(pool: Pool, args: argparse.Namespace) -> None:
    user_id = await _id_of(pool, args.name)
    password_hash = await args.passwords.hash(_password(args.name))
    await users.change(pool, user_id, _BY, password_hash=password_hash)
    _say(f"Changed the password of {args.name}. Tokens made with the old one are no longer valid.")


async def _delete_user(pool: Pool, args: argparse.Namespace) -> None:
    await users.delete(pool, await _id_of(pool, args.name), _BY)
    _say(f"Deleted {args.name}.")


async def _grant(pool: Pool, args: argparse.Namespace) -> None:
    user_id, hides = await _id_of(pool, args.name), args.hide_payloads
    grant = await users.grant(pool, user_id, Right(args.action), args.pattern, _BY, hides_payloads=hides)
    _say(f"{args.name} may {_grant_words(grant)}.")


async def _revoke_grant(pool: Pool, args: argparse.Namespace) -> None:
    user_id = await _id_of(pool, args.name)
    for grant in await users.grants(pool, user_id):
        if (grant.action.value, grant.topic_pattern) == (args.action, args.pattern):
            await users.revoke(pool, user_id, grant.id, _BY)
            _say(f"Revoked {args.action} on {args.pattern} from {args.name}.")
            return
    raise NotFound(f"{args.name} has no grant of {args.action} on {args.pattern}. `users list` shows all grants.")


_KEYS: Final[dict[str, Command]] = {"add": _add_key, "list": _list_keys, "rotate": _rotate_key, "revoke": _revoke_key}
_USERS: Final[dict[str, Command]] = {
    "add": _add_user,
    "list": _list_users,
    "passwd": _change_password,
    "delete": _delete_user,
    "grant": _grant,
    "revoke": _revoke_grant,
}


async def _id_of(pool: Pool, name: str) -> str:
    login = await users.find(pool, name)
    if login is None:
        raise NotFound(f"There is no user {name!r}.")
    return login.id


def _key_row(key: StoredKey) -> tuple[str, ...]:
    scopes, prefixes = "+".join(key.scopes.words), "|".join(key.prefixes) or "(every topic)"
    made, expires = _minute(key.created_at), _minute(key.expires_at) if key.expires_at else "never"
    tenant = "(all)" if key.tenant is None else ascii(key.tenant)
    payloads = HIDDEN if key.hides_payloads else "shown"
    return (key.id, key.state.value, scopes, prefixes, tenant, payloads, made, expires, key.name)


def _grant_words(grant: Grant) -> str:
    hidden = " (payloads hidden)" if grant.hides_payloads else ""
    return f"{grant.action.value} {grant.topic_pattern}{hidden}"


def _print_table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> None:
    widths = [max(map(len, cells)) for cells in zip(head, *rows, strict=True)]
    for row in (head, *rows):
        print("  ".join([*(cell.ljust(width) for cell, width in zip(row[:-1], widths, strict=False)), row[-1]]))


def _minute(time: datetime) -> str:
    return f"{time.astimezone(UTC):%Y-%m-%d %H:%M}"


def _password(name: str) -> str:
    """Read a password from a prompt, or from stdin without a terminal. Raises InvalidRequest."""
    if not sys.stdin.isatty():
        password = sys.stdin.readline().rstrip("\r\n")
        users.check_password(password)
        return password
    password = getpass.getpass(f"Password of {name}: ")
    users.check_password(password)
    if getpass.getpass("Again: ") != password:
        raise InvalidRequest("The passwords don't match.")
    return password


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
    def parse_duration(text: str) -> int:
        value = parse_length(text)
        if value is None:
            raise argparse.ArgumentTypeError(
                f"{text!r} is not a length of time: write a number and ms, s, m, h or d, such as 90d"
            )
        if not 0 < value <= most_ms:
            raise argparse.ArgumentTypeError(f"{text} must be between 1ms and {most_ms // UNITS_MS['d']}d")
        return value

    return parse_duration
