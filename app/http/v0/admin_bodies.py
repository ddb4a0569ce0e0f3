"""What the routes for keys and for the audit trail take and answer. Fields that are not listed are refused."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from app.http.bounds import about, text
from app.http.openapi import NAME
from app.http.signin import store
from app.http.signin.store import Kept, State
from app.http.v0.bodies import Performance
from app.kernel.topics.settings import SEVEN_DAYS_MS, TEN_YEARS_MS, Tenant

ScopeWord = Literal["read", "write", "delete", "admin"]


class MakeKeyBody(msgspec.Struct, forbid_unknown_fields=True):
    """A key to be made."""

    name: Annotated[
        str,
        text(
            "What it is for, on one line.",
            most=store.MOST_NAME_BYTES,
            least=1,
            pattern="^[^\\u0000-\\u001f\\u007f]*$",
        ),
    ]
    scopes: Annotated[list[ScopeWord], about("What it may do.", minItems=1)]
    prefixes: Annotated[
        list[Annotated[str, Meta(extra_json_schema=NAME)]],
        about("Starts of the names of the topics that it is for; none is every topic.", maxItems=store.MOST_PREFIXES),
    ] = []
    expires_in_ms: Annotated[
        Annotated[int, Meta(ge=1, le=TEN_YEARS_MS)] | None, about("How long it is good; without it, for ever.")
    ] = None
    tenant: Annotated[
        Tenant | None, about("Whose jobs it is for, and no others; then its scopes are read and write at most.")
    ] = None
    payloads: Annotated[
        Literal["shown", "hidden"],
        about("hidden: it sees jobs and not what is in them, and takes none."),
    ] = "shown"


class RotateKeyBody(msgspec.Struct, forbid_unknown_fields=True):
    """For how long the secret before stays good."""

    grace_ms: Annotated[int, Meta(ge=0, le=SEVEN_DAYS_MS, description="For how long, in ms; 0 ends it at once.")] = 0


class KeyShown(msgspec.Struct):
    """A key without its secret. Times are in ms since 1970. old_secret_until: how long the secret before the last
    rotation is good, null if it is not."""

    id: str
    name: str
    scopes: list[str]
    prefixes: list[str]
    tenant: str | None
    payloads: Literal["shown", "hidden"]
    state: Literal["live", "expired", "revoked"]
    created_at: int
    created_by: str
    rotated_at: int | None
    expires_at: int | None
    revoked_at: int | None
    old_secret_until: int | None


class KeyAnswer(KeyShown, kw_only=True):
    """The key as it is now."""

    performance: Performance


class SecretAnswer(KeyShown, kw_only=True):
    """The key as it is now, and its secret, which is shown this once."""

    secret: str
    performance: Performance


class KeysAnswer(msgspec.Struct):
    """A page of keys, the newest first; `next_cursor` is absent on the last one."""

    keys: list[KeyShown]
    performance: Performance
    next_cursor: str | UnsetType = UNSET


def shown(kept: Kept) -> KeyShown:
    """A key as the dialect shows it."""
    return KeyShown(
        id=kept.id,
        name=kept.name,
        scopes=kept.scopes.words,
        prefixes=list(kept.prefixes),
        tenant=kept.tenant,
        payloads="hidden" if kept.hides_payloads else "shown",
        state=kept.state.value,
        created_at=_ms(kept.created_at),
        created_by=kept.created_by,
        rotated_at=_ms_or_none(kept.rotated_at),
        expires_at=_ms_or_none(kept.expires_at),
        revoked_at=_ms_or_none(kept.revoked_at),
        old_secret_until=_ms_or_none(kept.old_until) if kept.state is State.LIVE else None,
    )


def _ms(time: datetime) -> int:
    return int(time.timestamp() * 1000)


def _ms_or_none(time: datetime | None) -> int | None:
    return None if time is None else _ms(time)
