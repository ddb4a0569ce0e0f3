"""The webhook of a topic: its configuration, which URLs it may have, and its secret, which is stored apart from every
configuration. docs/webhooks.md, docs/adr/0041.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Annotated, Final, Literal
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta

from app.base.db import sql
from app.base.keys import OWN
from app.errors import Forbidden, InvalidRequest

if TYPE_CHECKING:
    from app.kernel.model import Connection

_SQL: Final = sql.load_all(__package__)
_KEEP_SECRET = _SQL["keep_secret"]
_SECRET = _SQL["webhook_secret"]

DELIVERIES: Final = OWN + "webhooks"
MAX_URL_BYTES: Final = 2048
MASK: Final = "********"  # how what is shown in place of a secret begins

Event = Literal["completed", "failed", "dead_lettered"]
EVENTS: Final[tuple[Event, ...]] = ("completed", "failed", "dead_lettered")
Secret = Annotated[str, Meta(min_length=8, max_length=256, description="Signs what is sent. It is never shown again.")]


class Webhook(msgspec.Struct, frozen=True):
    """Where the ends of jobs are sent. Without url, only records with a URL of their own send any. secret signs what is
    sent and is never shown again: answers have a mask in its place, and sending the mask back keeps the secret."""

    url: (
        Annotated[
            str,
            Meta(max_length=MAX_URL_BYTES, extra_json_schema={"format": "uri"}, description="Where to send them."),
        ]
        | None
    ) = None
    on: Annotated[tuple[Event, ...], Meta(min_length=1, max_length=3, description="Which ends are sent.")] = EVENTS
    secret: Secret | None = None


class AskedWebhook(Webhook, frozen=True, forbid_unknown_fields=True):
    """Where the ends of jobs are sent. Without url, only records with a URL of their own send any. secret signs what is
    sent and is never shown again: answers have a mask in its place, and sending the mask back keeps the secret."""


def check_url(url: str, what: str) -> str:
    """Check a webhook's URL, and return it. Raises InvalidRequest, whose message begins with `what`."""
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


def is_own(topic: str) -> bool:
    """Whether it is one of the service's own topics."""
    return topic.startswith(OWN)


def check_records(topic: str, hook: Webhook | None, *, signs: bool) -> None:
    """Check that a topic takes records with webhooks, its own `hook` or theirs. `signs`: the service has a secret.

    Raises Forbidden for the service's own topics, InvalidRequest where nothing could be signed.
    """
    if is_own(topic):
        raise Forbidden("Nothing is put into the service's own topics.", {"topic": topic})
    if not signs and (hook is None or hook.secret is None):
        raise _no_secret_error(topic)


def check_dead_letter(topic: str | None) -> None:
    """Check that dead letters can go to a topic: not to the service's own, whose jobs are signed and sent.

    Raises InvalidRequest.
    """
    if topic is not None and is_own(topic):
        raise InvalidRequest("The service's own topics take no dead letters.", {"dead_letter": topic})


def check_setting(topic: str, hook: Webhook | None, *, signs: bool) -> None:
    """Check that a topic can have this webhook. Raises InvalidRequest."""
    if hook is not None and hook.url is not None:
        check_url(hook.url, "webhook.url")
        if not signs and hook.secret is None:
            raise _no_secret_error(topic)


def _no_secret_error(topic: str) -> InvalidRequest:
    return InvalidRequest(
        "There is nothing to sign with: give the topic's webhook a secret, or set HOLDFAST_WEBHOOK_SECRET.",
        {"topic": topic},
    )


def conceal(hook: Webhook | None) -> tuple[Webhook | None, str | None]:
    """Put a mask in the place of a webhook's secret. Returns the webhook and the secret: None if it has no secret, or a
    mask already."""
    if hook is None or hook.secret is None or hook.secret.startswith(MASK):
        return hook, None
    # Another secret has another mask, so that the audit trail shows a change of it.
    return msgspec.structs.replace(hook, secret=MASK + secrets.token_hex(4)), hook.secret


def check_mask(now: Webhook | None, before: Webhook | None) -> None:
    """Check that a mask that came in place of a secret stands for the stored secret. Raises InvalidRequest."""
    if now is not None and now.secret is not None and (before is None or before.secret != now.secret):
        raise InvalidRequest("webhook.secret stands for a secret that is not kept here: give the secret itself.")


async def keep(db: Connection, topic: str, secret: str | None) -> None:
    """Store a topic's secret, in the transaction that has stored its configuration. None keeps the stored secret, or
    deletes it if the configuration has none."""
    await db.execute(_KEEP_SECRET, topic, secret)


async def secret_of(db: Connection, topic: str, topic_id: int) -> str | None:
    """The secret of a topic's webhook."""
    secret: str | None = await db.fetchval(_SECRET, topic, topic_id)
    return secret
