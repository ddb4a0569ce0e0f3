"""What a request's path and query name."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from starlette.requests import Request

from app.errors import InvalidRequest
from app.http.openapi import path
from app.kernel.model import Seq
from app.kernel.topics.settings import BIGINT_MAX

SEQ: Final = path("seq", "The job's seq.", {"type": "integer", "minimum": 1, "maximum": BIGINT_MAX})
_SEQ: Final = re.compile(r"[0-9]{1,19}\Z")
_WHOLE: Final = re.compile(r"-?[0-9]{1,1000}\Z")


def whole(given: Mapping[str, str], name: str, default: int) -> int:
    """A whole number. Raises InvalidRequest."""
    text = given.get(name)
    if text is None:
        return default
    if _WHOLE.match(text) is None:
        raise InvalidRequest(f"{name} must be a whole number.")
    return int(text)


def seq_in(request: Request) -> Seq:
    """The seq that a request's path names. Raises InvalidRequest."""
    given: str = request.path_params["seq"]
    if _SEQ.match(given) is None or not 0 < int(given) <= BIGINT_MAX:
        raise InvalidRequest("A job's seq is a whole number from 1 on.")
    return Seq(int(given))
