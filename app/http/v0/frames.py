"""What the data of a stream's events is, by their names. For the description alone: the routes put frames together from
pieces, and tests hold what they send against these."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec
from msgspec import UNSET, UnsetType

from app.http.v0.bodies import JobShown


class JobFrame(JobShown, kw_only=True):
    """A job that was leased to this stream."""

    topic: str


class ErrorFrame(msgspec.Struct):
    """Advice where the code is 429; else why the stream ends. `topic`: of a work stream."""

    code: int
    error: str
    message: str
    topic: str | UnsetType = UNSET


WORK: Final[Mapping[str, type[msgspec.Struct]]] = {"job": JobFrame, "error": ErrorFrame}
