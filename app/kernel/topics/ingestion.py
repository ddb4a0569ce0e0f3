"""What a topic says of /in: which media types it takes, and from whom."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Final, Literal

from msgspec import Meta

MOST_TYPES: Final = 32
MEDIA_TYPE: Final = "^[!#$&^_.+A-Za-z0-9-]{1,120}/[!#$&^_.+A-Za-z0-9-]{1,120}$"
MediaType = Annotated[str, Meta(pattern=MEDIA_TYPE[:-1] + r"\Z", extra_json_schema={"pattern": MEDIA_TYPE})]
Ingest = Literal["key", "public"]
ACCEPTS: Final = ("application/json", "application/x-www-form-urlencoded", "multipart/form-data", "text/plain")


def media_types(asked: Sequence[str]) -> tuple[str, ...]:
    """Which ones /in takes: each once, in lower case."""
    return tuple(dict.fromkeys(one.lower() for one in asked))
