"""Navigation around a page: the sidebar, and the tabs of a topic."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from app.kernel.counts.triage import TopicLevels
from app.pages.permissions import Permission, allows

Handler = Callable[[Request], Awaitable[Response]]


class Menu(msgspec.Struct, frozen=True):
    """A page's link in the sidebar, or among the tabs of a topic where its path names one.

    place: links stand in the order of these. go: the key that leads there after g, "" for none. logs: logs have this
    tab, too. failed: the tab shows how many jobs have failed.
    """

    word: str
    place: int
    go: str = ""
    logs: bool = False
    failed: bool = False


class Page(msgspec.Struct, frozen=True):
    """A page, or what one of its forms sends: where it is below /admin, who may see or send it, what makes it, and its
    link if it has one."""

    method: str
    path: str
    needs: Permission
    do: Handler
    menu: Menu | None = None


class Link(msgspec.Struct, frozen=True):
    """A way to a page. `go`: the key that leads there after g, "" for none; `here`: it is the page that is shown;
    `looked`: what its topic holds, where the page shows failed jobs and they were counted."""

    href: str
    word: str
    go: str = ""
    here: bool = False
    looked: TopicLevels | None = None


def side(request: Request) -> list[Link]:
    """The links of the sidebar that the visitor may see."""
    path, found = request.url.path, []
    for page, menu in _pages_with_link(request, of_topics=False):
        href = f"/admin{page.path}"
        if allows(request, page.needs):
            here = path == href or (page.path != "/" and path.startswith(href))
            found.append(Link(href, menu.word, menu.go, here))
    return found


def tabs(request: Request, topic: str, *, is_log: bool = False, failed: TopicLevels | None = None) -> list[Link]:
    """The pages of a topic that the caller may see; none where there is but one. `failed`: what the topic holds, for
    the number of failed jobs at their page."""
    path, base = request.url.path, f"/admin/topics/{topic}"
    found = []
    for page, menu in _pages_with_link(request, of_topics=True):
        href = f"/admin{page.path}".replace("{topic}", topic)
        if allows(request, page.needs, topic) and (menu.logs or not is_log):
            here = _below(path, href, leaf=href == base)
            found.append(Link(href, menu.word, here=here, looked=failed if menu.failed else None))
    return found if len(found) > 1 else []


def _pages_with_link(request: Request, *, of_topics: bool) -> Iterator[tuple[Page, Menu]]:
    """In the order of the links: app/pages/mount.py has put them into the application's state."""
    pages: Sequence[Page] = request.app.state.linked
    return ((page, page.menu) for page in pages if page.menu and ("{topic}" in page.path) is of_topics)


def _below(path: str, href: str, *, leaf: bool) -> bool:
    return path == href or (not leaf and path.startswith(f"{href}/"))
