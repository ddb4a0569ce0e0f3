"""The command line: `holdfast`. Needs the extra `cli`. Each group of commands has a module; root.py lists them."""

from __future__ import annotations

import io
import sys

try:
    import typer  # noqa: F401 - required by the rest of this package
except ImportError:
    sys.exit("The command line needs the package's extra: cli")

from holdfast._cli.root import app


def main() -> None:
    """Entry point of `holdfast`."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # for terminals without Unicode
    app(prog_name="holdfast")
