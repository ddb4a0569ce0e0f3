"""Events for users of the application: `client.users`."""

from __future__ import annotations

from typing import Any

from holdfast import models
from holdfast._sse import Frame
from holdfast._streams import Stream
from holdfast._verbs import Resource, S, stream, verb
from holdfast._wire import Repeat, Request, encode, path, reads, without_none


class Users(Resource[S]):
    """Users of the application, by the application's ids. docs/webhooks.md."""

    @verb
    def token(self, id: str, *, ttl_ms: int | None = None) -> Request[models.UserToken]:
        """Make a token with which a browser opens this user's stream."""
        return Request(
            "POST",
            path("users", id, "token"),
            reads(models.UserToken),
            body=encode(without_none({"ttl_ms": ttl_ms})),
        )

    @verb
    def send(self, id: str, event: str, data: Any = None) -> Request[int]:
        """Send an event to a user. Returns the event's id."""
        return Request(
            "POST",
            path("users", id, "events"),
            lambda reply: int(reply.body["id"]),
            body=encode({"event": event, "data": data}),
            repeat=Repeat.IF_REFUSED,
        )

    @stream
    def events(self, id: str, *, token: str | None = None, after: int | None = None) -> Stream[models.UserEvent]:
        """Stream a user's events, from now on or `after` an id, as far as they are stored. `token`: the user's token,
        if the service has keys."""
        headers = {"accept": "text/event-stream"} | ({"authorization": f"Bearer {token}"} if token else {})
        request = Request(
            "GET", path("users", id, "events"), lambda _: None, params={"last_event_id": after}, headers=headers
        )

        def read_event(frame: Frame, body: Any) -> models.UserEvent:
            return models.UserEvent(int(frame.id) if frame.id.isdigit() else None, frame.event, body)

        return Stream(request, read_event)
