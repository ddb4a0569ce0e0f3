"""What users of the application are told: `client.users`."""

from __future__ import annotations

from typing import Any

from holdfast import models
from holdfast._sse import Frame
from holdfast._streams import Stream
from holdfast._verbs import Resource, S, stream, verb
from holdfast._wire import Repeat, Request, encode, path, reads, said


class Users(Resource[S]):
    """Users, by the application's own ids. docs/webhooks.md."""

    @verb
    def token(self, id: str, *, ttl_ms: int | None = None) -> Request[models.UserToken]:
        """A token for this user's stream, for a browser."""
        return Request(
            "POST",
            path("users", id, "token"),
            reads(models.UserToken),
            body=encode(said({"ttl_ms": ttl_ms})),
        )

    @verb
    def send(self, id: str, event: str, data: Any = None) -> Request[int]:
        """Tell this user something; the event's id."""
        return Request(
            "POST",
            path("users", id, "events"),
            lambda reply: int(reply.body["id"]),
            body=encode({"event": event, "data": data}),
            repeat=Repeat.IF_REFUSED,
        )

    @stream
    def events(self, id: str, *, token: str | None = None, after: int | None = None) -> Stream[models.UserEvent]:
        """What this user is told: from now on, or all that is kept of what came `after` an id. `token` is the user's,
        where the service has keys."""
        headers = {"accept": "text/event-stream"} | ({"authorization": f"Bearer {token}"} if token else {})
        request = Request(
            "GET", path("users", id, "events"), lambda _: None, params={"last_event_id": after}, headers=headers
        )

        def told(frame: Frame, body: Any) -> models.UserEvent:
            return models.UserEvent(int(frame.id) if frame.id.isdigit() else None, frame.event, body)

        return Stream(request, told)
