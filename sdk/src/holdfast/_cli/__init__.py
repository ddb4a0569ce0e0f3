"""The command line: `holdfast`. It needs the extra `cli`. A module for each group of commands; root.py has them all."""

from __future__ import annotations

import io
import sys

try:
    import typer  # noqa: F401 - the rest of this package can't do without
except ImportError:
    sys.exit("The command line needs the package's extra: cli")

from holdfast._cli.root import app


def main() -> None:
    """What `holdfast` runs."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a terminal that knows no Unicode is no error
    app(prog_name="holdfast")
