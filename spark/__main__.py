"""The command line: python -m spark <pipeline>, also for spark-submit."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from spark import pipelines


def main(argv: Sequence[str]) -> int:
    """Returns the exit code: the pipeline's, 1 if the database or Java fails, 2 for wrong arguments, 130 for Ctrl+C."""
    args = _parser(argv).parse_args(argv)
    # Imported here: Spark's packages take most of a second, and --help does not need them.
    from spark.running import run  # noqa: PLC0415

    return run(args)


def _parser(argv: Sequence[str]) -> argparse.ArgumentParser:
    """A parser of all pipelines, with the arguments of those named in `argv`."""
    parser = argparse.ArgumentParser(prog="python -m spark", description="Pipelines on the queue's tables.")
    _common(parser, None)
    commands = parser.add_subparsers(dest="pipeline", metavar="pipeline", required=True)
    for name, what in pipelines.PIPELINES.items():
        command = commands.add_parser(name, help=what, description=f"{what[0].upper()}{what[1:]}.")
        if name in argv:
            pipelines.load(name).arguments(command)
            _common(command, argparse.SUPPRESS)  # before or after the pipeline's name
    return parser


def _common(parser: argparse.ArgumentParser, default: str | None) -> None:
    where = parser.add_argument_group("where it runs")
    where.add_argument(
        "--dsn",
        default=default,
        metavar="URL",
        help="the queue's database, postgresql://user:password@host/name; default: HOLDFAST_DATABASE_URL, or ./run's",
    )
    where.add_argument(
        "--master", default=default, metavar="URL", help="Spark's master; default: spark-submit's, or local[*]"
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
