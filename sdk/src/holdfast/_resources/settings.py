"""A topic and its settings, and holding it up."""

from __future__ import annotations

from typing import Any, Final, Literal

from holdfast import models
from holdfast._body import fields_of
from holdfast._verbs import Resource, S, listing, verb
from holdfast._wire import ALL_MS, Request, encode, path, reads, reads_page, said
from holdfast.models.topics import DEAD_LETTERS

_QUEUE: Final = models.TopicConfig()


def settings_of(topic: str, config: models.TopicConfig) -> dict[str, Any]:
    """A topic's settings as they are sent: without the defaults that make no sense for this one."""
    settings = fields_of(config)
    if config.type == "log":
        for name in ("max_deliveries", "dead_letter", "backoff"):
            if getattr(config, name) == getattr(_QUEUE, name):
                del settings[name]
    elif config.dead_letter == DEAD_LETTERS and (config.on_exhausted == "fail" or topic.endswith(DEAD_LETTERS)):
        del settings["dead_letter"]
    elif config.dead_letter is None:
        # Else the service would deliver the job again, however often it failed.
        if config.max_deliveries and config.on_exhausted is None:
            settings["on_exhausted"] = "fail"
    elif config.dead_letter.startswith("."):
        settings["dead_letter"] = f"{topic}{config.dead_letter}"
    return settings


class NamedTopic(Resource[S]):
    """What has verbs of one topic."""

    def __init__(self, sender: S, name: str) -> None:
        super().__init__(sender)
        self.name = name

    def _path(self, *parts: str | int) -> str:
        return path("topics", self.name, *parts)


class TopicSettings(NamedTopic[S]):
    """The topic itself."""

    @verb
    def put(self, config: models.TopicConfig | None = None) -> Request[models.TopicPut]:
        """Make the topic, or replace its settings: what `config` leaves out goes back to the default of TopicConfig.
        Without it a job is delivered 20 times with growing pauses, and then moves to the dead letters."""
        body = encode(settings_of(self.name, config or _QUEUE))
        return Request("PUT", self._path(), reads(models.TopicPut), body=body)

    @verb
    def get(self, *, touch: bool | None = None) -> Request[models.TopicState]:
        """Its settings, and what it holds. With `touch=False` this does not count as a read of it."""
        return Request("GET", self._path(), reads(models.TopicState), params={"touch": touch})

    @verb
    def delete(self, *, if_empty: bool = False) -> Request[models.TopicRemoved]:
        """Delete it for good, with all that it holds: millions of jobs take minutes. With `if_empty`: a Conflict where
        it holds something."""
        params = {"if_empty": if_empty or None}
        return Request("DELETE", self._path(), reads(models.TopicRemoved), params=params, wait_ms=ALL_MS)

    @verb
    def pause(self, *, tenant: str | None = None) -> Request[models.Control]:
        """Hand no jobs out, of this tenant or of the whole topic."""
        return self._control("pause", tenant)

    @verb
    def resume(self, *, tenant: str | None = None) -> Request[models.Control]:
        """End a pause, and a drain if no tenant is named."""
        return self._control("resume", tenant)

    @verb
    def drain(self, *, wait_ms: int = 0) -> Request[models.Drained]:
        """Take nothing in any more; wait up to `wait_ms` (60,000) until it is empty."""
        return Request(
            "POST",
            self._path("drain"),
            reads(models.Drained),
            body=encode({"wait_ms": wait_ms}),
            wait_ms=wait_ms,
        )

    def _control(self, what: str, tenant: str | None) -> Request[models.Control]:
        body = encode(said({"tenant": tenant}))
        return Request("POST", self._path(what), reads(models.Control), body=body)


class Topics(Resource[S]):
    """The topics of the service: `client.topics`."""

    @listing
    def list(
        self,
        *,
        prefix: str | None = None,
        touch: bool | None = None,
        page_size: int | None = None,
        cursor: str | None = None,
    ) -> Request[models.Page[models.TopicSummary]]:
        """Topics by name."""
        params = {"prefix": prefix, "touch": touch, "page_size": page_size, "cursor": cursor}
        return Request("GET", path("topics"), reads_page(models.TopicSummary, "topics"), params=params)

    @listing
    def overview(
        self,
        *,
        prefix: str | None = None,
        troubled: bool | None = None,
        sort: Literal["name", "worst", "oldest", "ready", "dead"] | None = None,
        page_size: int | None = None,
        cursor: str | None = None,
    ) -> Request[models.Page[models.TopicOverview]]:
        """How topics are: what they hold, what became of their jobs within the hour, and what is wrong with them."""
        params = {"prefix": prefix, "troubled": troubled, "sort": sort, "page_size": page_size, "cursor": cursor}
        return Request("GET", path("overview"), reads_page(models.TopicOverview, "topics"), params=params)
