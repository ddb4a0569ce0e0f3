"""Navigation around a page: the sidebar, and the tabs of a topic."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from app.kernel.counts.triage import TopicLevels
from app.pages.permissions import SEE, SEE_RIGHTS, SEE_SCHEDULES, SEE_SERVER, Permission, allows

Handler = Callable[[Request], Awaitable[Response]]


class Page(msgspec.Struct, frozen=True):
    """A page, or what one of its forms sends: where it is below /admin, who may see or send it, and what makes it."""

    method: str
    path: str
    needs: Permission
    do: Handler


class Link(msgspec.Struct, frozen=True):
    """A way to a page. `go`: the key that leads there after g, "" for none; `here`: it is the page that is shown;
    `looked`: what its topic holds, where the page shows failed jobs and they were counted."""

    href: str
    word: str
    go: str = ""
    here: bool = False
    looked: TopicLevels | None = None


SIDE: Final[tuple[tuple[Link, Permission], ...]] = (
    (Link("/admin/", "Home", "h"), SEE),
    (Link("/admin/topics", "Topics", "t"), SEE),
    (Link("/admin/schedules", "Schedules", "s"), SEE_SCHEDULES),
    (Link("/admin/horizon", "Horizon"), SEE_SERVER),
    (Link("/admin/reapers", "Reapers"), SEE_SERVER),
    (Link("/admin/webhooks", "Webhooks"), SEE_SERVER),
    (Link("/admin/keys", "Keys"), SEE_RIGHTS),
    (Link("/admin/users", "Users"), SEE_SERVER),
    (Link("/admin/audit", "Audit"), SEE_RIGHTS),
)
FAILED: Final = "/dead"
TABS: Final[tuple[tuple[Link, Permission], ...]] = (  # what stands behind /admin/topics/{topic}
    (Link("", "Overview"), SEE),
    (Link("/jobs", "Jobs"), SEE),
    (Link(FAILED, "Failed"), SEE),
    (Link("/config", "Config"), SEE),
    (Link("/asof", "Time"), SEE),
)
_OF_LOGS: Final = {"", "/config"}  # of them, those that a log has too


def side(request: Request) -> list[Link]:
    """The links of the sidebar that the visitor may see."""
    path = request.url.path
    return [
        msgspec.structs.replace(one, here=path == one.href or (one.href != "/admin/" and path.startswith(one.href)))
        for one, permission in SIDE
        if allows(request, permission)
    ]


def tabs(request: Request, topic: str, *, is_log: bool = False, failed: TopicLevels | None = None) -> list[Link]:
    """The pages of a topic that the caller may see; none where there is but one. `failed`: what the topic holds, for
    the number of failed jobs at their page."""
    path, base = request.url.path, f"/admin/topics/{topic}"
    found = [
        msgspec.structs.replace(
            one,
            href=base + one.href,
            here=_below(path, base + one.href, leaf=not one.href),
            looked=failed if one.href == FAILED else None,
        )
        for one, permission in TABS
        if allows(request, permission, topic) and (one.href in _OF_LOGS or not is_log)
    ]
    return found if len(found) > 1 else []


def _below(path: str, href: str, *, leaf: bool) -> bool:
    return path == href or (not leaf and path.startswith(f"{href}/"))
