"""Users of the application: their ids on jobs. docs/user-events.md."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec
from msgspec import Meta

from app.api.fields import encode

MAX_USER_ID: Final = 128  # characters
USER_KEY: Final = "$user_id"  # in a job's metadata

UserId = Annotated[str, Meta(min_length=1, max_length=MAX_USER_ID, extra_json_schema={"pattern": "^[^\\u0000]*$"})]

_object = msgspec.json.Decoder(dict[str, msgspec.Raw])


def with_user(metadata: str | None, user_id: str) -> str:
    """The text of a job's metadata with the id of the user that it is for."""
    if metadata is None:
        return encode({USER_KEY: user_id}).decode()
    return encode({**_object.decode(metadata), USER_KEY: user_id}).decode()
