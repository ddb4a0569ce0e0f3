"""What was written under which write id: so that a pipeline can tell, and name what it is about to write."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from spark import source
from spark.errors import Mistake, reason
from spark.source.connection import connect


@dataclass(frozen=True, slots=True)
class Written:
    """So many jobs, at this time."""

    jobs: int
    at: datetime

    def __str__(self) -> str:
        return f"{self.jobs:,} jobs at {self.at:%Y-%m-%d %H:%M:%S} UTC"


def write_id(pipeline: str, *what: object) -> str:
    """The same for the same, on every machine."""
    return f"{pipeline} {sha256(json.dumps(what, default=str).encode()).hexdigest()[:32]}"


def find(dsn: str, name: str) -> Written | None:
    """None if nothing was written under this id."""
    with connect(dsn, read_only=True, purpose="writes") as db:
        row = db.execute("SELECT jobs, committed_at FROM holdfast.writes WHERE write_id = %s", [name]).fetchone()
    return None if row is None else Written(*row)


def enqueue(frame: DataFrame, dsn: str, topic: str | None, name: str) -> Written:
    """Make jobs of a frame's rows, unless that was done under this id: what was written, now or then.

    Raises Mistake for what queues refuse; then nothing was written.
    """
    try:
        source.enqueue(frame, dsn, topic, write_id=name)
    except (PySparkException, Py4JJavaError) as error:
        raise Mistake(reason(error)) from error
    written = find(dsn, name)
    assert written is not None, "it was committed"
    return written
