"""The command line: `holdfast`. It needs the extra `cli`. A module for each group of commands; root.py has them all."""

from __future__ import annotations

import sys

try:
    import typer  # noqa: F401 - the rest of this package can't do without
except ImportError:
    sys.exit("The command line needs more: pip install 'holdfast[cli]'")

from holdfast._cli.root import app


def main() -> None:
    """What `holdfast` runs."""
    app(prog_name="holdfast")
