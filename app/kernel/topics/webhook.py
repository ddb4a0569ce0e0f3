"""A topic's webhook as it is configured, and what a URL to be told must be. docs/webhooks.md."""

from __future__ import annotations

from typing import Annotated, Final, Literal
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta

from app.base.keys import OWN
from app.errors import InvalidRequest

DELIVERIES: Final = OWN + "webhooks"
MAX_URL_BYTES: Final = 2048
MASK: Final = "********"  # what a secret that is kept is shown as begins with

Event = Literal["completed", "failed", "dead_lettered"]
EVENTS: Final[tuple[Event, ...]] = ("completed", "failed", "dead_lettered")
Secret = Annotated[str, Meta(min_length=8, max_length=256, description="Signs what is sent. It is never shown again.")]


class Webhook(msgspec.Struct, frozen=True):
    """Who is told of jobs that end. Without url, only what records name. secret signs what is sent; it is never shown
    again: what stands for it, sent back, leaves it as it is."""

    url: (
        Annotated[
            str,
            Meta(max_length=MAX_URL_BYTES, extra_json_schema={"format": "uri"}, description="Where to send them."),
        ]
        | None
    ) = None
    on: Annotated[tuple[Event, ...], Meta(min_length=1, max_length=3, description="Which ends are told.")] = EVENTS
    secret: Secret | None = None


def check_url(url: str, what: str) -> str:
    """The URL, if it can be told. Raises InvalidRequest, which begins with `what`."""
    try:
        parts = urlsplit(url)
        fits = parts.scheme in {"http", "https"} and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        fits = False
    if not fits or not url.isascii() or not url.isprintable() or " " in url or len(url) > MAX_URL_BYTES:
        raise InvalidRequest(f"{what} must be an http:// or https:// URL of up to {MAX_URL_BYTES} ASCII characters.")
    if "@" in parts.netloc or "#" in url:
        raise InvalidRequest(f"{what} can't have a user, a password or a fragment.")
    return url
