"""Reads a request's credentials and the client's address."""

from __future__ import annotations

import base64
import ipaddress
from collections.abc import Sequence
from typing import Final
from urllib.parse import urlsplit

from starlette.requests import HTTPConnection, Request

from app.settings import Network

SESSION: Final = "holdfast_session"  # the cookie of the admin pages


def authorization(request: HTTPConnection) -> bytes:
    """The raw Authorization header; b"" if there is none."""
    # Read from the scope: this runs on every request, and is four times as fast as a lookup by name.
    for name, value in request.scope["headers"]:
        if name == b"authorization":
            given: bytes = value
            return given
    return b""


def bearer(header: bytes) -> bytes:
    """The key or token of a Bearer header (RFC 6750); b"" for another scheme."""
    given = header[7:].strip()
    if header[:7].lower() != b"bearer ":
        return b""
    return given if given.isascii() else given.decode("latin-1").encode()


def basic(header: bytes) -> tuple[str, str] | None:
    """The user's name and password of a Basic header (RFC 7617); None for another scheme or a malformed header."""
    if header[:6].lower() != b"basic ":
        return None
    try:
        name, colon, password = base64.b64decode(header[6:].strip(), validate=True).decode().partition(":")
    except ValueError:
        return None
    return (name, password) if colon else None


def from_another_site(request: HTTPConnection) -> bool:
    """Whether a browser's headers say that a page of another site made this request. Other clients send no such
    headers."""
    site = request.headers.get("sec-fetch-site")
    if site is not None:
        return site not in {"same-origin", "none"}
    origin = request.headers.get("origin")
    return origin is not None and origin.partition("://")[2] != request.headers.get("host")


def names_this_machine(host: str) -> bool:
    """Whether a Host header is a name or address that only this machine can have. Another site could make its own name
    resolve to this machine (DNS rebinding)."""
    try:
        name = urlsplit(f"//{host}").hostname or ""
        if name == "localhost" or name.endswith(".localhost"):
            return True
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def query_token(request: HTTPConnection) -> bytes:
    """The key or token in the query's first `token`; b"" if there is none."""
    return next(iter(request.query_params.getlist("token")), "").strip().encode()


def session_cookie(request: Request) -> bytes:
    """The session in the browser's cookie; b"" if there is none."""
    return request.cookies.get(SESSION, "").encode()


def peer_of(request: Request, proxies: Sequence[Network]) -> str:
    """The client's address: from X-Real-IP if the connection comes from a trusted proxy, else the connection's. Empty
    if unknown."""
    host = "" if request.client is None else request.client.host
    if not _is_proxy(host, proxies):
        return host
    return next((str(address) for address in _address(request.headers.get("x-real-ip", "").strip())), host)


def scheme_of(request: Request, proxies: Sequence[Network]) -> str:
    """http or https, as used by the client: from X-Forwarded-Proto if the connection comes from a trusted proxy."""
    scheme = request.headers.get("x-forwarded-proto", "").lower()
    is_trusted = scheme in ("http", "https") and request.client is not None and _is_proxy(request.client.host, proxies)
    return scheme if is_trusted else request.url.scheme


def _is_proxy(host: str, proxies: Sequence[Network]) -> bool:
    return bool(proxies) and any(address in network for address in _address(host) for network in proxies)


def _address(text: str) -> list[ipaddress.IPv4Address | ipaddress.IPv6Address]:
    try:
        parsed = ipaddress.ip_address(text)
    except ValueError:
        return []
    mapped = parsed.ipv4_mapped if isinstance(parsed, ipaddress.IPv6Address) else None
    return [mapped or parsed]
