"""API keys, and events for users of the application."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

Scope = Literal["read", "write", "delete", "admin"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """An API key without its secret. `payloads` hidden: it sees jobs without their payloads. docs/keys.md."""

    id: str
    name: str
    scopes: tuple[Scope, ...]
    prefixes: tuple[str, ...]
    tenant: str | None
    state: Literal["live", "expired", "revoked"]
    created_at: datetime
    created_by: str
    rotated_at: datetime | None
    expires_at: datetime | None
    revoked_at: datetime | None
    old_secret_until: datetime | None
    payloads: Literal["shown", "hidden"] = "shown"


@dataclass(frozen=True, slots=True, kw_only=True)
class SqsCredentials:
    """A key as AWS's SDKs take it, for the service's SQS endpoint."""

    access_key_id: str
    secret_access_key: str = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Secret(Key):
    """A new or rotated key with its secret, which is not shown again. `sqs`: its credentials for SQS clients, if they
    were asked for."""

    secret: str = field(repr=False)
    sqs: SqsCredentials | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class UserToken:
    """A token that only opens one user's stream of events."""

    user_id: str
    token: str = field(repr=False)
    expires_at: datetime


@dataclass(frozen=True, slots=True)
class UserEvent:
    """An event for a user. Pass its `id` as `after` to continue the stream."""

    id: int | None
    event: str
    data: Any
