"""The command line: python -m app <command>. Settings come from environment variables."""

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

# Some imports are inside functions, so that the supervisor never loads the web framework. `serve` starts in half the
# time.

DatabaseCommand = Callable[[str, str | None], Awaitable[int]]

REFUSED = 2
REAP = (
    "Run each of the background sweeps of `serve` once, for cron, and print how many rows each one moved. If another "
    "process already runs a sweep, wait for its result. The exit code is 1 if a sweep failed."
)
SERVER = "_server"  # internal command, started by `serve`


def main(argv: Sequence[str]) -> int:
    """Run a command. Returns the exit code: 0, 1 for a failure, 2 for a wrong configuration, 130 for Ctrl+C."""
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
    """Run a command with the settings of `environ`. Prints a configuration error as one line and returns `refused`."""
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
        # The reader of the output is gone. Python would raise this again when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


def _command(settings: Settings, args: argparse.Namespace, rest: list[str], environ: Mapping[str, str]) -> int:
    match args.command:
        case "serve":
            forget_secrets()  # the workers get them from `environ`
            code = asyncio.run(supervisor.serve(settings, environ))
        case "migrate":
            code = asyncio.run(_migrate(settings, args.down))
        case "reap":
            code = asyncio.run(_reap(settings, args.only or ()))
        case "openapi":
            code = _openapi(settings)
        case _:
            try:
                from app import demo  # noqa: PLC0415  (start time; the client is optional)
            except ModuleNotFoundError as error:
                raise ConfigurationError(f"The demo needs the Python client, which is not installed: {error}") from None
            code = demo.main(rest, settings)
    return code


@asynccontextmanager
async def _database(settings: Settings) -> AsyncIterator[str]:
    """The database's URL. Runs the embedded PostgreSQL inside the block if no database is set."""
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
            print(f"holdfast: the downgrade to {down} drops tables and all their data", file=sys.stderr)
            await schema.downgrade(url, down)
        elif outdated:
            await schema.upgrade(url)
        print(f"schema: {before.revision or 'none'} -> {await schema.current(url) or 'none'}")
    return 0


async def _reap(settings: Settings, only: Sequence[str]) -> int:
    """Run sweeps. Returns 1 if one failed; the others run all the same."""
    from app.features.upkeep.reapers import run_once  # noqa: PLC0415  (start time)
    from app.features.upkeep.runner import RunOutcome  # noqa: PLC0415
    from app.kernel.topics.policy import defaults_of  # noqa: PLC0415
    from app.main import SWEEPS  # noqa: PLC0415

    known = {sweep.name: sweep for sweep in SWEEPS}
    if unknown := sorted(set(only) - set(known)):
        raise ConfigurationError(f"There is no sweep {', '.join(unknown)}. The sweeps are {', '.join(known)}")
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
            raise ConfigurationError("The schema is older than this version of Holdfast: run `migrate` first")
        defaults, to_files = defaults_of(settings), settings.archive_to_files
        return 0 if await run_once(url, wanted, report, defaults=defaults, to_files=to_files) else 1


async def _on_database(settings: Settings, run: DatabaseCommand) -> int:
    async with _database(settings) as url:
        if await schema.check(url):
            raise ConfigurationError(
                "The schema is missing or older than this version of Holdfast: run `migrate` first"
            )
        redis_url = None if settings.redis_url is None else settings.redis_url.get_secret_value()
        return await run(url, redis_url)


def _openapi(settings: Settings) -> int:
    from app.main import create_app  # noqa: PLC0415  (start time)

    print(json.dumps(create_app(settings).openapi(), indent=2, ensure_ascii=False))
    return 0


def load_server() -> ModuleType:
    """Import the server. Garbage collection stays off until `Server.startup`: imported objects stay alive, and scanning
    them repeatedly takes a sixth of the start."""
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
        description="Holdfast: a job queue service on PostgreSQL. If HOLDFAST_DATABASE_URL is not set, it starts its "
        "own PostgreSQL.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog=_settings_help(),
    )
    parser.add_argument("--version", action="version", version=f"holdfast {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="command")

    def add(name: str, text: str, *, own_help: bool = True) -> argparse.ArgumentParser:
        return commands.add_parser(name, help=text, description=text, add_help=own_help)

    serve = add(
        "serve", "Run the service: start PostgreSQL if none is set, migrate, run HTTP servers and restart them."
    )
    serve.add_argument("--workers", metavar="N", help=f"number of server processes, overrides {PREFIX}WORKERS")
    migrate = add("migrate", "Upgrade the schema to this version and exit. `serve` does this as well.")
    migrate.add_argument("--down", metavar="REV", help="downgrade to this revision ('base': drop all); deletes data")
    reap = add("reap", REAP)
    reap.add_argument("--only", metavar="NAME", nargs="+", help="run only these sweeps, in this order")
    add("keys", "Create, list, rotate and revoke API keys. See `keys --help`.", own_help=False)
    add("users", "Create, list, change and delete users and their grants. See `users --help`.", own_help=False)
    add("openapi", "Print the OpenAPI document of the HTTP API. Needs no database.")
    add("demo", "Run a demo of the queue on a running service. Needs the Python client.", own_help=False)
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
