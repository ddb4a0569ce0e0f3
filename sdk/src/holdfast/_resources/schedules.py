"""Jobs by the clock: `client.schedules`."""

from __future__ import annotations

from typing import Any

from holdfast import models
from holdfast._body import record_of
from holdfast._verbs import Resource, S, listing, verb
from holdfast._wire import Repeat, Request, encode, path, reads, reads_page, said
from holdfast.models.schedules import Missed


class Schedules(Resource[S]):
    """Schedules, by name."""

    @listing
    def list(
        self, *, prefix: str | None = None, page_size: int | None = None, cursor: str | None = None
    ) -> Request[models.Page[models.ScheduleSummary]]:
        """Schedules by name."""
        return Request(
            "GET",
            path("schedules"),
            reads_page(models.ScheduleSummary, "schedules"),
            params={"prefix": prefix, "page_size": page_size, "cursor": cursor},
        )

    @verb
    def put(
        self,
        name: str,
        *,
        topic: str,
        cron: str,
        record: models.Record | Any,
        time_zone: str | None = None,
        missed: Missed | None = None,
        paused: bool | None = None,
    ) -> Request[models.Schedule]:
        """Make a schedule, or replace one. `record` is the job, or its data; `cron` has five fields, in `time_zone` (an
        IANA name, UTC if absent); `missed` says what becomes of times that nobody was there for. docs/schedules.md."""
        body = {
            **{"topic": topic, "cron": cron, "time_zone": time_zone, "missed": missed, "paused": paused},
            "record": record_of(record, {}),
        }
        return self._one("PUT", name, body=encode(said(body)))

    @verb
    def get(self, name: str) -> Request[models.Schedule]:
        """One schedule, and when it fires next."""
        return self._one("GET", name)

    @verb
    def pause(self, name: str) -> Request[models.Schedule]:
        """It makes no jobs until it is resumed."""
        return self._one("POST", name, "pause")

    @verb
    def resume(self, name: str) -> Request[models.Schedule]:
        """It makes jobs again."""
        return self._one("POST", name, "resume")

    @verb
    def run(self, name: str) -> Request[models.ScheduleRun]:
        """Make one job of it now."""
        return Request(
            "POST",
            path("schedules", name, "run"),
            reads(models.ScheduleRun),
            repeat=Repeat.IF_REFUSED,
        )

    @verb
    def delete(self, name: str) -> Request[None]:
        """Delete it; NotFound if there is none."""
        return Request("DELETE", path("schedules", name), lambda _: None)

    @staticmethod
    def _one(method: str, *parts: str, body: bytes | None = None) -> Request[models.Schedule]:
        return Request(method, path("schedules", *parts), reads(models.Schedule), body=body)
