"""What a delivery is signed with: the scheme of Standard Webhooks, version 1."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac

PREFIX = "whsec_"


def signature(secret: str, identity: str, timestamp: int, body: bytes) -> str:
    """Of `id.timestamp.body`. A secret that begins with whsec_ is base64 of its bytes; any other is its bytes."""
    mac = hmac.new(_bytes_of(secret), b"%b.%d.%b" % (identity.encode(), timestamp, body), hashlib.sha256)
    return "v1," + base64.b64encode(mac.digest()).decode()


def _bytes_of(secret: str) -> bytes:
    if secret.startswith(PREFIX):
        try:
            return base64.b64decode(secret.removeprefix(PREFIX), validate=True)
        except binascii.Error:
            pass
    return secret.encode()
