"""Who may do what: API keys and users, checked before anything else. docs/semantics.md, section 21."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Final

from starlette.requests import HTTPConnection, Request

from app.base.keys import OWN, Key, Scope, digest_of
from app.base.log import KEY
from app.errors import Forbidden, HoldfastError, Unauthorized
from app.http.credentials import (
    authorization,
    basic,
    bearer,
    from_another_site,
    names_this_machine,
    peer_of,
    query_token,
    scheme_of,
    session_cookie,
)
from app.http.signin.people import User, UserKey
from app.kernel.audit import trail
from app.kernel.audit.trail import Actor

if TYPE_CHECKING:
    from app.http.quota import Quota
    from app.http.signin.directory import Directory
    from app.http.signin.sessions import Sessions
    from app.settings import Network

_NEEDED: Final = (
    "Sign-in is needed: Authorization: Bearer <API key or token>, or a user's name and password as HTTP Basic."
)
_REVOKED: Final = "This key was revoked or has expired."
MOST_HOSTS: Final = 100
_USER: Final = "holdfast.user"  # in a request's scope, once its user is known
_KEY: Final = "holdfast.key"  # there, of a session that was opened with it
_UNTIL: Final = "holdfast.until"  # there, when the session is over, on the monotonic clock


class UnknownKey(Unauthorized):
    """A key, token or password that this process does not know: the database is asked before the answer.

    Raised by a route's first check only, before its body is read: the route can be run again.
    """


class Access:
    """Checks requests against the keys and users that the process knows. While there are none, everything is open, and
    credentials that are sent are ignored."""

    def __init__(
        self,
        directory: Directory,
        quota: Quota,
        sessions: Sessions,
        proxies: Sequence[Network] = (),
        *,
        local: bool = False,
    ) -> None:
        """`proxies`: whose X-Real-IP and X-Forwarded-Proto are believed; `local`: the service listens on loopback."""
        self.directory = directory
        self.sessions = sessions
        self._quota = quota
        self._proxies = proxies
        self._local = local
        self._local_hosts: set[bytes] = set()  # Host headers that were looked at, and lead here
        # Open streams, by the key that each was opened with; None: it was opened without one.
        self._watched: dict[Key | None, set[Callable[[HoldfastError], None]]] = {}
        directory.loaded.subscribe(self._cut_off)

    def check(
        self,
        request: HTTPConnection,
        scopes: Scope,
        topic: str | None = None,
        *,
        consumes: bool = False,
        query_token: bool = False,
        confines: bool = False,
    ) -> Key | None:
        """Check that a request is allowed. Returns its key, or None if the server is open. A user's key covers the
        topics for which they are granted these scopes.

        Raises Unauthorized, Forbidden, Throttled. `consumes`: of a user, a grant of write or consume is enough.
        `query_token`: the route also takes the key as ?token=, for browsers' EventSource; `confines`: it keeps a key
        that is for one tenant to that tenant's jobs, where others refuse such a key.
        """
        if not self.directory.guarded:
            self._refuse_other_sites(request)
            return None
        key = request.scope[KEY] = self._key(request, scopes, consumes=consumes, in_query=query_token)
        if scopes not in key.scopes:
            missing = "+".join((scopes & ~key.scopes).words)
            raise Forbidden(f"This key lacks the scope {missing}.")
        if key.tenant is not None and not confines:
            raise Forbidden("This key is for the jobs of one tenant, and this is about more.")
        if topic is not None:
            must_cover(key, topic)
        if consumes and key.hides_payloads:
            raise Forbidden("Payloads are hidden from this key, so it takes no jobs and settles none.")
        if self._quota.requests_per_key:
            self._quota.take_request(request.scope, key)
        return key

    def check_server(self, request: Request) -> Key | None:
        """Check that a request may see the whole server: admin, and a key for every topic. Returns the key.

        Raises Unauthorized, Forbidden.
        """
        key = self.check(request, Scope.ADMIN)
        if key is not None and key.prefixes:
            raise Forbidden("This key is for some topics only, and this is about the whole server.")
        return key

    def may_name(self, request: Request, topic: str) -> None:
        """Check that a key may write to a topic that its request names. Raises Unauthorized, Forbidden."""
        self.check(request, Scope.WRITE, topic)

    def prefixes(self, request: Request, scopes: Scope) -> tuple[str, ...]:
        """Which topics a list that needs these scopes may show, by the starts of their names; none for all."""
        key = self.check(request, scopes)
        return () if key is None else key.prefixes

    def peer(self, request: Request) -> str:
        """The address that a request is from."""
        return peer_of(request, self._proxies)

    def scheme(self, request: Request) -> str:
        """http or https, as the client uses it."""
        return scheme_of(request, self._proxies)

    def actor(self, request: Request) -> Actor:
        """Who a change is made by, for the audit trail. Raises Unauthorized."""
        return self.actor_with(self.check(request, Scope(0), confines=True), request)

    def actor_with(self, key: Key | None, request: Request) -> Actor:
        """The same, where the request's key is known."""
        return _actor(key, self.peer(request) or None)

    def still_good(self, key: Key | None) -> bool:
        """Whether a request that was let in a while ago would be let in now."""
        if key is None:
            return not self.directory.guarded
        if not isinstance(key, UserKey):
            return self.directory.find(key.digest) is not None
        user = self.directory.user(key.id)
        if user is None or user.epoch != key.epoch or (key.until is not None and time.monotonic() >= key.until):
            return False
        try:
            now = user.key(key.asked, consumes=key.consumes)
            return now.may_grant(Scope(0), key.prefixes) and now.sees_payloads_below(key.sight)
        except Forbidden:
            return False

    def rights(self, request: Request) -> Hashable:
        """The caller's rights as this process knows them by now; equal for callers who may do the same.

        Raises Unauthorized once that is nothing, because their session, key or user is no more.
        """
        key = self.check(request, Scope(0), confines=True)
        if not self.still_good(key) or time.monotonic() >= request.scope.get(_UNTIL, math.inf):
            raise _end_of(key)
        if key is None:
            return None
        user = self.directory.user(key.id) if isinstance(key, UserKey) else None
        return (key.scopes, key.prefixes, key.tenant, key.hides_payloads) if user is None else user.rights

    def watch(self, key: Key | None, end: Callable[[HoldfastError], None]) -> Callable[[], None]:
        """Call `end` once the key is no longer valid, perhaps at once. Returns a function that calls that off."""
        watchers = self._watched.setdefault(key, set())
        watchers.add(end)

        def call_off() -> None:
            watchers.discard(end)
            if not watchers and self._watched.get(key) is watchers:
                del self._watched[key]

        if not self.still_good(key):
            end(_end_of(key))
        return call_off

    async def knows_by_now(self, request: Request) -> bool:
        """Whether what was unknown is known once the database was asked: for a key or token, once a second at most.

        Raises TooManyTries, Unavailable: for a password that is looked at.
        """
        header = authorization(request)
        shown = basic(header)
        # The given key, wherever the route takes it from: the route checks again.
        given = [one for one in (bearer(header), query_token(request)) if one]
        await self.directory.look_again()
        if any(self.directory.find(digest_of(one)) or self.sessions.by_token(one) for one in given):
            return True
        return shown is not None and await self.sessions.knows_by_now(*shown, self.peer(request))

    def user(self, request: Request) -> User:
        """The user that a request is from. Raises Unauthorized; Forbidden for a key."""
        key = self.check(request, Scope(0))
        found: tuple[User, float | None] | None = request.scope.get(_USER)
        if found is None:
            if key is not None:
                raise Forbidden("This is for users, not for keys.")
            raise Unauthorized("No user has signed in.")
        return found[0]

    async def admit(self, request: Request) -> bytes:
        """Sign a request in by its session cookie. Returns the session, empty for none that is valid. Other credentials
        of the request take precedence."""
        session = session_cookie(request)
        if not session or not self.directory.guarded or authorization(request):
            return b""
        found = await self.sessions.by_session(session)
        if found is None:
            await self.directory.look_again()  # the user may have been made elsewhere a moment ago
            found = await self.sessions.by_session(session)
        if found is None:
            return b""
        whose, until = found
        request.scope[_UNTIL] = until
        if isinstance(whose, User):
            request.scope[_USER] = whose, until
        else:
            request.scope[_KEY] = whose
        return session

    def _key(self, request: HTTPConnection, scopes: Scope, *, consumes: bool, in_query: bool) -> Key:
        admitted: Key | None = request.scope.get(_KEY)
        if admitted is not None:
            return admitted
        found: tuple[User, float | None] | None = request.scope.get(_USER)
        if found is None:
            header = authorization(request)
            given = bearer(header) or (query_token(request) if in_query else b"")
            shown = None if given else basic(header)
            key = self.directory.find(digest_of(given)) if given else None
            if key is not None:
                return key
            if shown:
                if from_another_site(request):
                    # Browsers send a password that they were given along with any site's requests.
                    raise Forbidden("With HTTP Basic, this is not for pages of other sites.")
                user = self.sessions.by_password(*shown)
                found = None if user is None else (user, None)
            elif given:
                found = self.sessions.by_token(given)
            if found is None:
                raise UnknownKey(_NEEDED) if given or shown else Unauthorized(_NEEDED)
            # A later check of the same request finds them good, too: it may have begun by then.
            request.scope[_USER] = found
        user, until = found
        return user.key(scopes, consumes=consumes, until=until)

    def _refuse_other_sites(self, request: HTTPConnection) -> None:
        """Without sign-in, refuse requests that a browser sends for pages of another site, also of one whose name leads
        here. Everybody who can reach the service is trusted, but not the pages they look at. Raises Forbidden."""
        host, by_browser = b"", False
        for name, value in request.scope["headers"]:
            if name == b"host":
                host = value
            elif name in {b"origin", b"sec-fetch-site"}:
                by_browser = True
        if by_browser and from_another_site(request):
            raise Forbidden("Without sign-in, this is not for pages of other sites.")
        if self._local and host and host not in self._local_hosts:
            if not names_this_machine(host.decode("latin-1")):
                named = host[:80].decode("latin-1")
                raise Forbidden(
                    f"Without sign-in, this is for this machine alone, and the request's Host is {named!r}. "
                    "Use localhost or 127.0.0.1, or set HOLDFAST_API_KEYS and send a key."
                )
            if len(self._local_hosts) < MOST_HOSTS:
                self._local_hosts.add(host)

    def _cut_off(self) -> None:
        for key, watchers in list(self._watched.items()):
            if self.still_good(key):
                continue
            for end in list(watchers):
                end(_end_of(key))


def must_cover(key: Key | None, topic: str) -> None:
    """Check that a key that was let in is for this topic. Raises Forbidden."""
    if key is not None and not key.covers(topic):
        if topic.startswith(OWN) and Scope.ADMIN not in key.scopes:
            raise Forbidden("This is one of the service's own topics: it takes the scope admin.", {"topic": topic})
        if isinstance(key, UserKey):
            raise Forbidden("Nothing that is granted to this user allows this in this topic.", {"topic": topic})
        raise Forbidden("This key is not for this topic.", {"topic": topic})


def _actor(key: Key | None, address: str | None) -> Actor:
    """The owner of this key, as the audit trail names them."""
    if key is None:
        return Actor(trail.OPEN, None, address)
    return Actor(key.label, key.name or None, address)


def _end_of(key: Key | None) -> Unauthorized:
    if key is None:
        return Unauthorized(_NEEDED)
    what = "This user may do this no more, or must sign in again." if isinstance(key, UserKey) else _REVOKED
    return Unauthorized(what)
