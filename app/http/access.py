"""Access checks of API keys and users. They run before anything else. docs/semantics.md, section 21."""

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
# In a request's scope:
_USER: Final = "holdfast.user"  # the user, once known
SIGNED: Final = "holdfast.key"  # the key that signed the request, or opened the session
_UNTIL: Final = "holdfast.until"  # the session's end on the monotonic clock


class UnknownKey(Unauthorized):
    """This process does not know the key, token or password. Errors.look_again asks the database.

    Only a route's first check raises it, before the body is read, so the route can run again.
    """


class Access:
    """Checks requests against the keys and users that the process knows. While there are none, the server is open and
    ignores credentials."""

    def __init__(
        self,
        directory: Directory,
        quota: Quota,
        sessions: Sessions,
        proxies: Sequence[Network] = (),
        *,
        local: bool = False,
    ) -> None:
        """`proxies` are trusted to set X-Real-IP and X-Forwarded-Proto. `local`: the service listens on loopback."""
        self.directory = directory
        self.sessions = sessions
        self._quota = quota
        self._proxies = proxies
        self._local = local
        self._local_hosts: set[bytes] = set()  # Host headers known to name this machine
        # Callbacks that end open streams, by the key of the stream; None: opened without a key.
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
        topics in which the user has these scopes.

        - consumes: for a user, a grant of write or consume is enough.
        - query_token: the route also accepts the key as ?token=, for browsers' EventSource.
        - confines: the route restricts a tenant's key to the tenant's jobs. Other routes refuse such a key.

        Raises Unauthorized, Forbidden, Throttled.
        """
        if not self.directory.guarded:
            self._refuse_other_sites(request)
            return None
        key = request.scope[KEY] = self._key(request, scopes, consumes=consumes, in_query=query_token)
        if scopes not in key.scopes:
            missing = "+".join((scopes & ~key.scopes).words)
            raise Forbidden(f"This key lacks the scope {missing}.")
        if key.tenant is not None and not confines:
            raise Forbidden("This key is limited to one tenant's jobs. This call covers other jobs too.")
        if topic is not None:
            must_cover(key, topic)
        if consumes and key.hides_payloads:
            raise Forbidden("This key can't see payloads, so it can't claim or settle jobs.")
        if self._quota.requests_per_key:
            self._quota.take_request(request.scope, key)
        return key

    def check_server(self, request: Request) -> Key | None:
        """Check that a request has a key with the scope admin for every topic. Returns the key.

        Raises Unauthorized, Forbidden.
        """
        key = self.check(request, Scope.ADMIN)
        if key is not None and key.prefixes:
            raise Forbidden("This key is limited to some topics. This call covers the whole server.")
        return key

    def may_name(self, request: Request, topic: str) -> None:
        """Check that a request may write to another topic that it names. Raises Unauthorized, Forbidden."""
        self.check(request, Scope.WRITE, topic)

    def prefixes(self, request: Request, scopes: Scope) -> tuple[str, ...]:
        """Prefixes of the topics that a list with these scopes may show; empty for all topics."""
        key = self.check(request, scopes)
        return () if key is None else key.prefixes

    def peer(self, request: Request) -> str:
        """The client's address."""
        return peer_of(request, self._proxies)

    def scheme(self, request: Request) -> str:
        """http or https, as used by the client."""
        return scheme_of(request, self._proxies)

    def actor(self, request: Request) -> Actor:
        """The author of a change, for the audit trail. Raises Unauthorized."""
        return self.actor_with(self.check(request, Scope(0), confines=True), request)

    def actor_with(self, key: Key | None, request: Request) -> Actor:
        """The author of a change by a request with this key."""
        return _actor(key, self.peer(request) or None)

    def still_good(self, key: Key | None) -> bool:
        """Whether a key that was accepted earlier would be accepted now."""
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
        """The caller's current rights. Callers with the same rights get equal values.

        Raises Unauthorized once the session, key or user is no longer valid.
        """
        key = self.check(request, Scope(0), confines=True)
        if not self.still_good(key) or time.monotonic() >= request.scope.get(_UNTIL, math.inf):
            raise _end_of(key)
        if key is None:
            return None
        user = self.directory.user(key.id) if isinstance(key, UserKey) else None
        return (key.scopes, key.prefixes, key.tenant, key.hides_payloads) if user is None else user.rights

    def watch(self, key: Key | None, end: Callable[[HoldfastError], None]) -> Callable[[], None]:
        """Call `end` as soon as the key is no longer valid. Returns a function that cancels the call."""
        watchers = self._watched.setdefault(key, set())
        watchers.add(end)

        def call_off() -> None:
            watchers.discard(end)
            if not watchers and self._watched.get(key) is watchers:
                del self._watched[key]

        if not self.still_good(key):
            end(_end_of(key))
        return call_off

    async def reauthenticate(self, request: Request) -> bool:
        """Ask the database for an unknown key, token or password. Returns whether it is valid.

        Asks about keys and tokens at most once a second. Raises TooManyTries, Unavailable for a password.
        """
        header = authorization(request)
        login = basic(header)
        # Accept the key from either place: the route checks again.
        given = [one for one in (bearer(header), query_token(request)) if one]
        await self.directory.look_again()
        if any(self.directory.find(digest_of(one)) or self.sessions.by_token(one) for one in given):
            return True
        return login is not None and await self.sessions.reauthenticate(*login, self.peer(request))

    def user(self, request: Request) -> User:
        """The user who made a request. Raises Unauthorized; Forbidden for a key."""
        key = self.check(request, Scope(0))
        found: tuple[User, float | None] | None = request.scope.get(_USER)
        if found is None:
            if key is not None:
                raise Forbidden("Only users can make this call, not keys.")
            raise Unauthorized("No user has signed in.")
        return found[0]

    async def admit(self, request: Request) -> bytes:
        """Authenticate a request by its session cookie. Returns the session, or b"" if it is not valid. Other
        credentials of the request take precedence."""
        session = session_cookie(request)
        if not session or not self.directory.guarded or authorization(request):
            return b""
        found = await self.sessions.by_session(session)
        if found is None:
            await self.directory.look_again()  # another process may have just created the user
            found = await self.sessions.by_session(session)
        if found is None:
            return b""
        whose, until = found
        request.scope[_UNTIL] = until
        if isinstance(whose, User):
            request.scope[_USER] = whose, until
        else:
            request.scope[SIGNED] = whose
        return session

    def _key(self, request: HTTPConnection, scopes: Scope, *, consumes: bool, in_query: bool) -> Key:
        admitted: Key | None = request.scope.get(SIGNED)
        if admitted is not None:
            return admitted
        found: tuple[User, float | None] | None = request.scope.get(_USER)
        if found is None:
            header = authorization(request)
            given = bearer(header) or (query_token(request) if in_query else b"")
            login = None if given else basic(header)
            key = self.directory.find(digest_of(given)) if given else None
            if key is not None:
                return key
            if login:
                if from_another_site(request):
                    # Browsers add a stored password to requests from any site.
                    raise Forbidden("Pages of other sites can't use HTTP Basic here.")
                user = self.sessions.by_password(*login)
                found = None if user is None else (user, None)
            elif given:
                found = self.sessions.by_token(given)
            if found is None:
                raise UnknownKey(_NEEDED) if given or login else Unauthorized(_NEEDED)
            # Later checks of this request reuse the result, even if the credentials expire meanwhile.
            request.scope[_USER] = found
        user, until = found
        return user.key(scopes, consumes=consumes, until=until)

    def _refuse_other_sites(self, request: HTTPConnection) -> None:
        """Without sign-in, refuse requests that a browser sends for pages of another site, including DNS rebinding. An
        open server trusts its clients, but not the pages that they visit. Raises Forbidden."""
        host, by_browser = b"", False
        for name, value in request.scope["headers"]:
            if name == b"host":
                host = value
            elif name in {b"origin", b"sec-fetch-site"}:
                by_browser = True
        if by_browser and from_another_site(request):
            raise Forbidden("Pages of other sites can't call a service without sign-in.")
        if self._local and host and host not in self._local_hosts:
            if not names_this_machine(host.decode("latin-1")):
                named = host[:80].decode("latin-1")
                raise Forbidden(
                    f"A service without sign-in answers requests from its own machine only, and Host is {named!r}. "
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
    """Check that an accepted key covers this topic. Raises Forbidden."""
    if key is not None and not key.covers(topic):
        if topic.startswith(OWN) and Scope.ADMIN not in key.scopes:
            raise Forbidden("This topic belongs to the service. It needs the scope admin.", {"topic": topic})
        if isinstance(key, UserKey):
            raise Forbidden("This user has no grant that allows this on this topic.", {"topic": topic})
        raise Forbidden("This key is not for this topic.", {"topic": topic})


def _actor(key: Key | None, address: str | None) -> Actor:
    """The key's owner, as named in the audit trail."""
    if key is None:
        return Actor(trail.OPEN, None, address)
    return Actor(key.label, key.name or None, address)


def _end_of(key: Key | None) -> Unauthorized:
    if key is None:
        return Unauthorized(_NEEDED)
    what = "This user's permission has changed. Sign in again." if isinstance(key, UserKey) else _REVOKED
    return Unauthorized(what)
