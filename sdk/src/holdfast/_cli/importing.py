"""`holdfast import`: imports the jobs of a jqueue file."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from holdfast import models
from holdfast._cli.lines import MAX_BATCH_BYTES
from holdfast._cli.params import Json, TopicName
from holdfast._cli.session import Exit, Refused, session
from holdfast._jqueue.queues import checked
from holdfast._jqueue.state import JobStatus
from holdfast._jqueue.verbs import SETTINGS, record_of

BATCH: Final = 1_000


def import_(
    topic: TopicName,
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="A jqueue file, such as queue.json.", show_default=False)
    ],
    as_json: Json = False,
) -> None:
    """Import the jobs of a jqueue file into a queue. Creates the queue if necessary. Importing twice within the topic's
    dedupe window adds no duplicates."""
    with session(as_json) as (client, out):
        jobs, dead = _jobs_of(file)
        taken = deduped = 0
        for batch in _batches(jobs):
            done = client.topic(topic).enqueue_many(batch, config=SETTINGS)
            taken += done.count
            deduped += len(done.duplicates)
        before = f", {deduped} of them already before" if deduped else ""
        left = f"; {dead} dead jobs were left out" if dead else ""
        out.did({"taken": taken, "deduped": deduped, "dead": dead}, f"{taken} written{before}{left}.")


def _jobs_of(file: Path) -> tuple[list[models.Record], int]:
    """Read the jobs that are not dead, in the file's order, and the number of dead ones. Raises Refused before anything
    is written."""
    try:
        jobs = json.loads(file.read_bytes())["jobs"]
        found = [_job_of(place, job) for place, job in enumerate(jobs, 1)]
    except OSError as error:
        raise Refused("unreadable", f"{file}: {error.strerror}", exit=Exit.USAGE) from error
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        why = str(error) if isinstance(error, ValueError) else "it is not an object with jobs"
        raise Refused("bad_file", f"{file} is not a jqueue file: {why}.", exit=Exit.USAGE) from error
    records = [record for record in found if record is not None]
    return records, len(found) - len(records)


def _batches(jobs: list[models.Record]) -> Iterator[list[models.Record]]:
    batch: list[models.Record] = []
    size = 0
    for job in jobs:
        size += len(job.data)
        if batch and (len(batch) == BATCH or size > MAX_BATCH_BYTES):
            yield batch
            batch, size = [], len(job.data)
        batch.append(job)
    if batch:
        yield batch


def _job_of(place: int, job: Any) -> models.Record | None:
    """A job as a BrokerQueue enqueues it, deduplicated by its id in the file; None for a dead one. A job in progress
    becomes ready. Raises ValueError."""
    try:
        if JobStatus(job["status"]) is JobStatus.DEAD:
            return None
        # In either alphabet of base64. pydantic writes the one for URLs.
        payload = base64.b64decode(job["payload"].replace("-", "+").replace("_", "/"), validate=True)
        put = checked(job["entrypoint"], payload, job["priority"], {})
        if not isinstance(job["id"], str):
            raise TypeError("its id is not a string")
    except KeyError as error:
        raise ValueError(f"job {place} has no {error}") from error
    except (ValueError, TypeError, AttributeError) as error:
        raise ValueError(f"job {place} is not valid: {error}") from error
    return replace(record_of(put), dedupe_id=job["id"])
