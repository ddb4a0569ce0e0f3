"""The command line: python -m app <command>. Settings come from the environment."""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from types import ModuleType

from pydantic import SecretStr

from app import __version__
from app import serve as supervisor
from app.base import log
from app.base.db import schema
from app.base.db.embedded import EmbeddedPostgres
from app.errors import ConfigurationError
from app.serve import worker
from app.settings import PREFIX, Settings, forget_secrets

# Some imports stand in the functions that need them: the supervisor neither waits for the web framework nor holds
# it in memory, and a warm `serve` is ready in half the time.

DatabaseCommand = Callable[[str, str | None], Awaitable[int]]

REFUSED = 2
REAP = (
    "Run every background sweep once that `serve` runs by itself, and print how much each one moved. For cron. "
    "One that is under way in another process is joined. The exit code is 1 if one failed."
)
SERVER = "_server"  # the command that `serve` starts; nobody types it


def main(argv: Sequence[str]) -> int:
    """The exit code: 0, 1 for a failure that was explained, 2 for a configuration that can't work, 130 for Ctrl+C."""
    if argv[:1] == [SERVER]:
        return _explain_faults(lambda settings: _server(settings, *map(int, argv[1:])), os.environ, worker.REFUSED)
    if argv[:1] in (["keys"], ["users"]):
        return _on_sign_in(argv[0], argv[1:])
    parser = _parser()
    args, rest = parser.parse_known_args(argv)
    if rest and args.command != "demo":
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    environ = dict(os.environ)
    if getattr(args, "workers", None) is not None:
        environ[f"{PREFIX}WORKERS"] = args.workers
    return _explain_faults(lambda settings: _command(settings, args, rest, environ), environ, REFUSED)


def _on_sign_in(command: str, argv: Sequence[str]) -> int:
    from app.http.signin import commands  # noqa: PLC0415  (start time)

    args = commands.parse(command, argv)

    def on(settings: Settings) -> int:
        async def run(url: str, redis_url: str | None) -> int:
            return await commands.run(command, url, redis_url, settings.bcrypt_cost, args)

        return asyncio.run(_on_database(settings, run))

    return _explain_faults(on, os.environ, REFUSED)


def _explain_faults(command: Callable[[Settings], int], environ: Mapping[str, str], refused: int) -> int:
    """Run a command with the settings of `environ`; a configuration that can't work is one line on stderr."""
    try:
        settings = Settings.from_env(environ)
        log.configure(settings.log_level, settings.log_format)
        return command(settings)
    except ConfigurationError as error:
        print(f"holdfast: {error}", file=sys.stderr)
        return refused
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # Whoever read the output has gone; Python would complain again when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


def _command(settings: Settings, args: argparse.Namespace, rest: list[str], environ: Mapping[str, str]) -> int:
    match args.command:
        case "serve":
            forget_secrets()  # of `environ`, the workers get them
            code = asyncio.run(supervisor.serve(settings, environ))
        case "migrate":
            code = asyncio.run(_migrate(settings, args.down))
        case "reap":
            code = asyncio.run(_reap(settings, args.only or ()))
        case "openapi":
            code = _openapi(settings)
        case _:
            try:
                from app import demo  # noqa: PLC0415  (start time; and the service does without the client)
            except ModuleNotFoundError as error:
                raise ConfigurationError(f"The demo needs the Python client, which is not here: {error}") from None
            code = demo.main(rest, settings)
    return code


@asynccontextmanager
async def _database(settings: Settings) -> AsyncIterator[str]:
    """The URL of the database of the settings; the embedded one runs as long as this is open."""
    if settings.database_url is not None:
        yield settings.database_url.get_secret_value()
        return
    postgres = EmbeddedPostgres(settings.data_dir, settings.pg_bindir)
    try:
        yield await asyncio.to_thread(postgres.start)
    finally:
        await asyncio.to_thread(postgres.stop)


async def _migrate(settings: Settings, down: str | None) -> int:
    async with _database(settings) as url:
        before = await schema.wait_for_facts(url, settings.start_wait_seconds)
        outdated = schema.judge(before)
        if down is not None:
            print(f"holdfast: going back to {down} drops tables with all that is in them", file=sys.stderr)
            await schema.downgrade(url, down)
        elif outdated:
            await schema.upgrade(url)
        print(f"schema: {before.revision or 'none'} -> {await schema.current(url) or 'none'}")
    return 0


async def _reap(settings: Settings, only: Sequence[str]) -> int:
    """1 where a sweep failed; the others ran all the same."""
    from app.features.upkeep.reapers import run_once  # noqa: PLC0415  (start time)
    from app.features.upkeep.runner import RunOutcome  # noqa: PLC0415
    from app.kernel.topics.policy import defaults_of  # noqa: PLC0415
    from app.main import SWEEPS  # noqa: PLC0415

    known = {sweep.name: sweep for sweep in SWEEPS}
    if unknown := sorted(set(only) - set(known)):
        raise ConfigurationError(f"There is no sweep {', '.join(unknown)}; there are {', '.join(known)}")
    wanted = [known[name] for name in only] or [sweep for sweep in SWEEPS if sweep.every]

    def report(name: str, outcome: RunOutcome | Exception) -> None:
        if isinstance(outcome, Exception):
            print(f"{name}: failed: {outcome or repr(outcome)}", file=sys.stderr)
        elif outcome.running:
            print(f"{name}: {outcome.moved} so far", file=sys.stderr)
        else:
            print(f"{name}: {outcome.moved}", flush=True)

    async with _database(settings) as url:
        if await schema.check(url):
            raise ConfigurationError("The schema is older than this version: run `migrate` first")
        defaults, to_files = defaults_of(settings), settings.archive_to_files
        return 0 if await run_once(url, wanted, report, defaults=defaults, to_files=to_files) else 1


async def _on_database(settings: Settings, run: DatabaseCommand) -> int:
    async with _database(settings) as url:
        if await schema.check(url):
            raise ConfigurationError("The schema is missing or older than this version: run `migrate` first")
        redis_url = None if settings.redis_url is None else settings.redis_url.get_secret_value()
        return await run(url, redis_url)


def _openapi(settings: Settings) -> int:
    from app.main import create_app  # noqa: PLC0415  (start time)

    print(json.dumps(create_app(settings).openapi(), indent=2, ensure_ascii=False))
    return 0


def load_server() -> ModuleType:
    """The module that serves. Nothing is collected before `Server.startup` says so: all that is loaded stays, and
    looking through it for garbage again and again is a sixth of a start."""
    gc.disable()
    from app.serve import server  # noqa: PLC0415  (start time)

    return server


def _server(settings: Settings, fd: int, lifeline: int) -> int:
    forget_secrets()
    server = load_server()
    if settings.workers > 1:
        log.configure(settings.log_level, settings.log_format, server.slot())
    url = worker.url_from(lifeline)
    if url is None:
        return 0
    settings = settings.model_copy(update={"database_url": SecretStr(url)})
    code: int = server.run(settings, socket.socket(fileno=fd), lifeline)
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m app",
        description="Holdfast: a job queue service on PostgreSQL. Without a database of its own it starts one.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog=_settings_help(),
    )
    parser.add_argument("--version", action="version", version=f"holdfast {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="command")

    def add(name: str, text: str, *, own_help: bool = True) -> argparse.ArgumentParser:
        return commands.add_parser(name, help=text, description=text, add_help=own_help)

    serve = add("serve", "Run the service: PostgreSQL if none is named, migrations, HTTP servers; restart what dies.")
    serve.add_argument("--workers", metavar="N", help=f"how many server processes; instead of {PREFIX}WORKERS")
    migrate = add("migrate", "Bring the schema to this version, and stop. `serve` does it as well.")
    migrate.add_argument("--down", metavar="REV", help="go back to a version instead, 'base' for none; deletes data")
    reap = add("reap", REAP)
    reap.add_argument("--only", metavar="NAME", nargs="+", help="these sweeps only, in this order")
    add("keys", "Make, list, rotate and revoke API keys: see `keys --help`.", own_help=False)
    add("users", "Make, list, change and delete users and their grants: see `users --help`.", own_help=False)
    add("openapi", "Print the OpenAPI document of the HTTP API. Needs no database.")
    add("demo", "Show the queue at work on a running service; needs the Python client.", own_help=False)
    return parser


def _settings_help() -> str:
    lines = ["settings (environment variables):"]
    for name, field in Settings.model_fields.items():
        default = field.default.get_secret_value() if isinstance(field.default, SecretStr) else field.default
        default = int(default) if isinstance(default, bool) else default
        known = "" if default in (None, "", ()) else f" [{default}]"
        lines.append(f"  {PREFIX}{name.upper()}{known}\n      {field.description}")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
