"""The schema as SQL: what `make schema` writes to docs/schema.sql, and a test compares it with."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import urlsplit

from app.base.db import schema
from app.base.db.embedded import EmbeddedPostgres

PATH = Path(__file__).parents[1] / "docs/schema.sql"
MAJOR = 18  # pg_dump writes differently from version to version
HEADER = """\
-- The schema of Holdfast: made by `make schema` from the migrations, never by hand.
-- The partitions of lease_events, archive and results, one for each day, are left out; the service makes them ahead.

"""


class OtherVersion(Exception):
    """The PostgreSQL here is not the one that the snapshot is made with."""


def dump() -> str:
    """Migrate an empty database and dump it. Raises OtherVersion."""
    with TemporaryDirectory() as folder:
        postgres = EmbeddedPostgres(Path(folder), unsafe_fast=True)
        try:
            url = postgres.start()
            if postgres.cluster.programs.major != MAJOR:
                raise OtherVersion(f"PostgreSQL {postgres.cluster.programs.version}, and the snapshot needs {MAJOR}")
            asyncio.run(schema.upgrade(url))
            return HEADER + normalised(_pg_dump(postgres.cluster.programs.bindir, url))
        finally:
            postgres.stop()


def normalised(text: str) -> str:
    """Without what changes from run to run or from one minor version to the next."""
    lines = [line for line in text.splitlines() if not line.startswith(("-- Dumped ", "\\restrict", "\\unrestrict"))]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip() + "\n"


def _pg_dump(bindir: Path, url: str) -> str:
    parts = urlsplit(url)
    command = [str(bindir / "pg_dump"), "--schema-only", "--no-owner", "--no-privileges", "--schema=holdfast"]
    command += [f"--exclude-table=holdfast.{table}_2*" for table in ("lease_events", "archive", "results")]
    command += [f"--host={parts.hostname}", f"--port={parts.port}"]
    command += [f"--username={parts.username}", parts.path[1:]]
    environment = os.environ | {"PGPASSWORD": parts.password or ""}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout


if __name__ == "__main__":
    try:
        PATH.write_text(dump())
    except OtherVersion as error:
        sys.exit(f"schema: {error}")
    print(PATH.relative_to(PATH.parents[1]))
