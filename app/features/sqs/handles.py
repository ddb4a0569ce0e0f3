"""Receipt handles: the topic, the seq and the lease of one delivery, so that each is a fence. Task handles likewise."""

from __future__ import annotations

import base64
import binascii
import struct
from typing import Final

from asyncpg.pgproto.pgproto import UUID

from app.features.sqs.faults import SqsFault
from app.kernel.model import LeaseId, Seq

_FORM: Final = struct.Struct(">iq16s")


def write(topic_id: int, seq: int, lease: str) -> str:
    """The handle of a delivery. `lease`: 32 hex digits."""
    return base64.urlsafe_b64encode(_FORM.pack(topic_id, seq, bytes.fromhex(lease))).decode().rstrip("=")


def read(handle: str) -> tuple[int, Seq, LeaseId]:
    """Topic id, seq and lease. Raises SqsFault."""
    try:
        raw = base64.urlsafe_b64decode(handle.encode() + b"==")
        topic_id, seq, lease = _FORM.unpack(raw)
    except (binascii.Error, ValueError, struct.error):
        raise not_valid() from None
    return topic_id, Seq(seq), UUID(lease)


def not_valid() -> SqsFault:
    """The refusal of a handle that names no delivery of the queue."""
    return SqsFault("ReceiptHandleIsInvalid", "The input receipt handle is invalid.")
