"""Write ids: they name what a pipeline writes, so that it is written once."""

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
    """How many jobs were written, and when."""

    jobs: int
    at: datetime

    def __str__(self) -> str:
        return f"{self.jobs:,} jobs at {self.at:%Y-%m-%d %H:%M:%S} UTC"


def write_id(pipeline: str, *what: object) -> str:
    """An id for these values, the same on every machine."""
    return f"{pipeline} {sha256(json.dumps(what, default=str).encode()).hexdigest()[:32]}"


def find(dsn: str, name: str) -> Written | None:
    """The jobs written under this id; None if there are none."""
    with connect(dsn, read_only=True, purpose="writes") as db:
        row = db.execute("SELECT jobs, committed_at FROM holdfast.writes WHERE write_id = %s", [name]).fetchone()
    return None if row is None else Written(*row)


def enqueue(frame: DataFrame, dsn: str, topic: str | None, name: str) -> Written:
    """Turn a frame's rows into jobs, unless this id was written before. Returns what was written, now or before.

    Raises Mistake if a queue refuses a row; then nothing was written.
    """
    try:
        source.enqueue(frame, dsn, topic, write_id=name)
    except (PySparkException, Py4JJavaError) as error:
        raise Mistake(reason(error)) from error
    written = find(dsn, name)
    assert written is not None, "the write was committed"
    return written
