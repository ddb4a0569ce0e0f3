"""AWS Signature Version 4, as SQS clients sign: in a header, or in the query of a presigned request.

The secret of a key is not stored: it is the HMAC of the key's id and digest under the service's own secret, so it
changes when the key is rotated. docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv-create-signed-request.html
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final
from urllib.parse import parse_qsl, quote

import msgspec
from starlette.requests import Request

from app.features.sqs.faults import SqsFault

ALGORITHM: Final = "AWS4-HMAC-SHA256"
SKEW: Final = timedelta(minutes=5)
MOST_EXPIRES: Final = 604_800  # seconds that a presigned request is good, as AWS has it
UNSIGNED: Final = "UNSIGNED-PAYLOAD"


class Signature(msgspec.Struct, frozen=True):
    """What a request says of its signature."""

    access_key: str
    date: str
    region: str
    service: str
    headers: Sequence[str]
    signature: str
    at: datetime
    expires: int | None  # seconds after `at`; None: the header's, good for SKEW


def read(request: Request) -> Signature | None:
    """A request's signature; None: it has none. Raises SqsFault."""
    header = request.headers.get("authorization", "")
    query = dict(parse_qsl(request.url.query, keep_blank_values=True))
    try:
        if header.startswith(ALGORITHM):
            parts = dict(part.strip().split("=", 1) for part in header[len(ALGORITHM) :].split(","))
            stamp = request.headers.get("x-amz-date", "")
            expires = None
        elif query.get("X-Amz-Algorithm") == ALGORITHM:
            parts = {name: query[f"X-Amz-{name}"] for name in ("Credential", "SignedHeaders", "Signature")}
            stamp, expires = query["X-Amz-Date"], int(query["X-Amz-Expires"])
            if not 0 < expires <= MOST_EXPIRES:
                raise _incomplete(f"X-Amz-Expires must be 1 to {MOST_EXPIRES}.")
        else:
            return None
        access_key, date, region, service, end = parts["Credential"].split("/")
        names = parts["SignedHeaders"].split(";")
        at = datetime.strptime(stamp, "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
        signature = parts["Signature"]
    except (KeyError, ValueError):
        raise _incomplete("Authorization must have Credential, SignedHeaders and Signature, and X-Amz-Date.") from None
    if end != "aws4_request" or service != "sqs" or stamp[:8] != date:
        raise _incomplete("Credential should be scoped to its date, a region, sqs and aws4_request.")
    if "host" not in names:
        raise _incomplete("SignedHeaders must have host.")
    return Signature(access_key, date, region, service, names, signature, at, expires)


def check(
    request: Request, signed: Signature, body: bytes, secret_of: Callable[[bytes], str]
) -> Callable[[bytes], bool]:
    """Return a function that checks whether the key with a digest has signed a request. `secret_of`: a key's secret, by
    its digest. Raises SqsFault if the signature is too old or the body has changed."""
    now = datetime.now(UTC)
    good_until = signed.at + (SKEW if signed.expires is None else timedelta(seconds=signed.expires))
    if not signed.at - SKEW <= now <= good_until:
        raise SqsFault("RequestExpired", f"The signature's time, {signed.at:%Y%m%dT%H%M%SZ}, is too far from now.", 403)
    payload = hashlib.sha256(body).hexdigest()
    declared = request.headers.get("x-amz-content-sha256", payload)
    if declared not in (payload, UNSIGNED):
        raise SqsFault("SignatureDoesNotMatch", "The body is not the one that was signed.", 403)
    scope = "/".join((signed.date, signed.region, signed.service, "aws4_request"))
    canonical = hashlib.sha256(_canonical(request, signed, declared).encode()).hexdigest()
    text = f"{ALGORITHM}\n{signed.at:%Y%m%dT%H%M%SZ}\n{scope}\n{canonical}"

    def fits(digest: bytes) -> bool:
        made = _sign(secret_of(digest), signed, text)
        return hmac.compare_digest(made.encode(), signed.signature.encode())

    return fits


def _canonical(request: Request, signed: Signature, payload: str) -> str:
    encode: Callable[[str], str] = lambda text: quote(text, safe="-_.~")  # noqa: E731
    pairs = parse_qsl(request.url.query, keep_blank_values=True)
    query = sorted((encode(name), encode(value)) for name, value in pairs if name != "X-Amz-Signature")
    headers = [f"{name}:{' '.join(','.join(request.headers.getlist(name)).split())}\n" for name in signed.headers]
    raw = request.scope.get("raw_path", b"").decode("latin-1").partition("?")[0] or "/"
    return "\n".join(
        (
            request.method,
            quote(raw, safe="/-_.~"),
            "&".join(f"{name}={value}" for name, value in query),
            "".join(headers),
            ";".join(signed.headers),
            payload,
        )
    )


def _sign(secret: str, signed: Signature, text: str) -> str:
    key = f"AWS4{secret}".encode()
    for part in (signed.date, signed.region, signed.service, "aws4_request"):
        key = hmac.digest(key, part.encode(), "sha256")
    return hmac.new(key, text.encode(), hashlib.sha256).hexdigest()


def _incomplete(message: str) -> SqsFault:
    return SqsFault("IncompleteSignature", message, 403)
