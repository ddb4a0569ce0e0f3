"""Sign-in, sign-out, and the checks before every page: visitor, origin and CSRF token. docs/admin.md."""

from __future__ import annotations

import hmac
from typing import Final
from urllib.parse import parse_qsl

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from app.errors import Forbidden, HoldfastError, InvalidRequest, PayloadTooLarge
from app.http.context import context_of
from app.http.credentials import SESSION, from_another_site
from app.http.signin.tokens import PAGES_SECONDS
from app.pages import permissions, render

HOME: Final = "/admin"
PROOF: Final = "proof"  # a form's hidden field
MOST_BYTES: Final = 64 * 1024
MOST_FIELDS: Final = 100
_FIELDS: Final = "holdfast.fields"  # in a request's scope, once the form was checked
_SAFE: Final = {"GET", "HEAD"}


class Door:
    """Middleware around all pages: identifies the visitor, and refuses requests from other sites' pages."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = Request(scope, receive)
        try:
            await _let_in(request)
        except Exception as error:
            refusal = await render.show_error(request, error)
            await refusal(scope, receive, send)
            return
        await self._app(scope, receive, send)


async def _let_in(request: Request) -> None:
    access = context_of(request).access
    if request.method not in _SAFE and from_another_site(request):
        raise Forbidden("This request came from a page of another site.")
    if not access.directory.guarded:
        permissions.must_be_local(request)
    session = await access.admit(request)
    proof = await access.sessions.proof(session) if session else ""
    request.scope[permissions.VISITOR] = permissions.visitor(request, proof)


async def fields_of(request: Request) -> dict[str, str]:
    """Parse the request's form and check its CSRF token. Later calls return the same fields.

    Raises Forbidden, InvalidRequest, PayloadTooLarge.
    """
    known: dict[str, str] | None = request.scope.get(_FIELDS)
    if known is not None:
        return known
    fields = await _parse_form(request)
    expected = permissions.visitor_of(request).proof
    # A caller with a key in a header needs no token: browsers don't send that header by themselves.
    if expected and not hmac.compare_digest(fields.pop(PROOF, "").encode(), expected.encode()):
        raise Forbidden("This form is from another session. Load the page again.")
    request.scope[_FIELDS] = fields
    return fields


async def ask(request: Request) -> Response:
    if permissions.visitor_of(request).role is not None:
        return RedirectResponse(HOME, 303)
    return render.sign_in(request, 200)


async def sign_in(request: Request) -> Response:
    """Open a session, and go back to the page that the visitor wanted."""
    fields = await _parse_form(request)
    access = context_of(request).access
    if not access.directory.guarded:
        return RedirectResponse(HOME, 303)
    name = fields.get("name", "")
    try:
        session = await access.sessions.open(name, fields.get("secret", ""), access.peer(request))
    except HoldfastError as error:
        return render.sign_in(request, error.status, message=error.message, name=name, back=_back(fields))
    response = RedirectResponse(_back(fields), 303, {"cache-control": "no-store"})
    # The Origin header has the scheme that the browser used, whatever proxies are between.
    secure = "https" in {request.url.scheme, request.headers.get("origin", "").partition("://")[0]}
    response.set_cookie(
        SESSION, session, max_age=PAGES_SECONDS, path=HOME, httponly=True, samesite="lax", secure=secure
    )
    return response


async def sign_out(request: Request) -> Response:
    await fields_of(request)
    response = RedirectResponse(f"{HOME}/sign-in", 303, {"cache-control": "no-store"})
    response.delete_cookie(SESSION, path=HOME, httponly=True, samesite="lax")
    return response


def _back(fields: dict[str, str]) -> str:
    back = fields.get("back", "")
    fine = (back == HOME or back.startswith((f"{HOME}/", f"{HOME}?"))) and back.isascii() and back.isprintable()
    return back if fine and "\\" not in back and not back.startswith(f"{HOME}/sign-") else HOME


async def _parse_form(request: Request) -> dict[str, str]:
    if request.headers.get("content-type", "").partition(";")[0].strip() != "application/x-www-form-urlencoded":
        raise InvalidRequest("The body must be a form (application/x-www-form-urlencoded).")
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > MOST_BYTES:
            raise PayloadTooLarge(f"The form is too large. The limit is {MOST_BYTES} bytes.")
    try:
        pairs = parse_qsl(body.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=MOST_FIELDS)
    except ValueError:
        raise InvalidRequest("The form can't be parsed.") from None
    return dict(pairs)
