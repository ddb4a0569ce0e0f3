"""Navigation: the links of the sidebar and the tabs of a topic."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from app.kernel.counts.triage import TopicLevels
from app.pages.permissions import Permission, allows

Handler = Callable[[Request], Awaitable[Response]]


class Menu(msgspec.Struct, frozen=True):
    """A page's link: a topic tab if the page's path has a topic, else a sidebar link.

    place: sort order. go: the shortcut key after g, "" for none. logs: logs have this tab too. failed: the tab shows
    the number of failed jobs.
    """

    word: str
    place: int
    go: str = ""
    logs: bool = False
    failed: bool = False


class Page(msgspec.Struct, frozen=True):
    """A page or a form's POST route: its path below /admin, its permission, its handler, and its link if it has one."""

    method: str
    path: str
    needs: Permission
    do: Handler
    menu: Menu | None = None


class Link(msgspec.Struct, frozen=True):
    """A link to a page. `go`: the shortcut key after g, "" for none; `here`: this is the current page; `levels`: the
    topic's counts, if the link shows its failed jobs."""

    href: str
    word: str
    go: str = ""
    here: bool = False
    levels: TopicLevels | None = None


def side(request: Request) -> list[Link]:
    path, found = request.url.path, []
    for page, menu in _pages_with_link(request, of_topics=False):
        href = f"/admin{page.path}"
        if allows(request, page.needs):
            here = path == href or (page.path != "/" and path.startswith(href))
            found.append(Link(href, menu.word, menu.go, here))
    return found


def tabs(request: Request, topic: str, *, is_log: bool = False, failed: TopicLevels | None = None) -> list[Link]:
    """Return the tabs of a topic that the visitor may see, or none if there is only one. `failed`: the topic's counts,
    for the number of failed jobs on a tab."""
    path, base = request.url.path, f"/admin/topics/{topic}"
    found = []
    for page, menu in _pages_with_link(request, of_topics=True):
        href = f"/admin{page.path}".replace("{topic}", topic)
        if allows(request, page.needs, topic) and (menu.logs or not is_log):
            here = _below(path, href, leaf=href == base)
            found.append(Link(href, menu.word, here=here, levels=failed if menu.failed else None))
    return found if len(found) > 1 else []


def _pages_with_link(request: Request, *, of_topics: bool) -> Iterator[tuple[Page, Menu]]:
    pages: Sequence[Page] = request.app.state.linked  # in menu order, set by app/pages/mount.py
    return ((page, page.menu) for page in pages if page.menu and ("{topic}" in page.path) is of_topics)


def _below(path: str, href: str, *, leaf: bool) -> bool:
    return path == href or (not leaf and path.startswith(f"{href}/"))
