"""The admin pages without a browser: what stands on a page, its links, and its forms as they are filled in and sent."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from html.parser import HTMLParser
from typing import Final
from xml.etree.ElementTree import Element, TreeBuilder

import httpx

from tests.api.people import PASSWORD
from tests.conftest import Running

_EMPTY: Final = {"br", "hr", "img", "input", "link", "meta"}
_WITHIN_A_LINE: Final = {"a", "b", "bdi", "code", "del", "ins", "small", "span", "strong", "time"}


class _Reader(HTMLParser):
    """Builds a tree. A block stands apart from the text before it, and an `option` needs no end."""

    def __init__(self) -> None:
        super().__init__()
        self._builder = TreeBuilder()
        self._open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if self._open and tag not in _WITHIN_A_LINE:
            self._builder.data(" ")
        self._builder.start(tag, {name: value or "" for name, value in attrs})
        if tag in _EMPTY:
            self._builder.end(tag)
        else:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        while tag in self._open:
            last = self._open.pop()
            self._builder.end(last)
            if last == tag:
                return

    def handle_data(self, data: str) -> None:
        if self._open:
            self._builder.data(data)

    def tree(self) -> Element:
        return self._builder.close()


def words(element: Element) -> str:
    """Its text, blanks as one space."""
    return " ".join("".join(element.itertext()).split())


class Page:
    """A page as it was answered."""

    def __init__(self, answer: httpx.Response) -> None:
        self.status = answer.status_code
        self.html = answer.text
        self.path = answer.url.raw_path.decode()
        reader = _Reader()
        reader.feed(self.html)
        self.tree = reader.tree()
        main = self.tree.find(".//main")
        assert main is not None, self.html
        self.main = main

    def all(self, path: str) -> list[str]:
        """The words of each element of the page that an XPath finds."""
        return [words(one) for one in self.main.iterfind(path)]

    @property
    def text(self) -> str:
        return words(self.main)

    @property
    def rows(self) -> list[str]:
        """The text of each row of its lists."""
        return self.all(".//*[@data-row]")

    @property
    def table(self) -> list[list[str]]:
        """The cells of its tables."""
        return [[words(cell) for cell in row.iterfind("td")] for row in self.main.iterfind(".//tbody/tr")]

    def row(self, text: str) -> str:
        """The row of a table that begins so."""
        (found,) = [row for row in self.all(".//tbody/tr") if row.startswith(text)]
        return found

    def value(self, name: str) -> str:
        """The value of a field."""
        field = self._field(name)
        if field.tag == "textarea":
            return "".join(field.itertext()).removeprefix("\n")
        return _chosen(field) if field.tag == "select" else field.get("value", "")

    def fault(self, name: str) -> str:
        """The error message beside a field."""
        field = self._field(name)
        if "aria-invalid" not in field.attrib:
            return ""
        beside = [self.main.find(f".//*[@id='{one}']") for one in field.get("aria-describedby", "").split()]
        return " ".join(words(one) for one in beside if one is not None)

    def button(self, name: str) -> Element | None:
        """A form's button, by its id, its label or its words, or by how they begin."""
        buttons = list(self.main.iter("button"))
        named = [one for one in buttons if name in {words(one), one.get("aria-label"), one.get("id")}]
        return next(iter(named or [one for one in buttons if words(one).startswith(name)]), None)

    def link(self, name: str) -> str | None:
        """Where a link leads, by the beginning of its words."""
        return next((one.get("href") for one in self.main.iter("a") if words(one).startswith(name)), None)

    def form_of(self, name: str) -> Element:
        """The form that a button sends."""
        button = self.button(name)
        assert button is not None, f"no button {name} among {self.all('.//button')}"
        return next(form for form in self.main.iter("form") if any(one is button for one in form.iter()))

    def _field(self, name: str) -> Element:
        fields = [one for tag in ("input", "textarea", "select") for one in self.main.iter(tag)]
        return next(one for one in fields if one.get("name") == name and one.get("type") != "hidden")


def _chosen(select: Element) -> str:
    options = list(select.iter("option"))
    chosen = [one for one in options if "selected" in one.attrib] or options[:1]
    return chosen[0].get("value", words(chosen[0]))


def _sent(form: Element) -> dict[str, str | list[str]]:
    """The fields of a form as a browser would submit them unchanged."""
    sent: dict[str, str | list[str]] = {}
    for one in form.iter():
        name = one.get("name", "")
        if one.tag == "select":
            sent[name] = _chosen(one)
        elif one.tag == "textarea":
            sent[name] = "".join(one.itertext()).removeprefix("\n")
        elif one.tag == "input" and (one.get("type") != "checkbox" or "checked" in one.attrib):
            sent[name] = one.get("value", "on")
    return sent


class Operator:
    """Somebody at the pages. What is pressed is sent with what stands in its form, but for what is typed."""

    def __init__(self, http: httpx.AsyncClient) -> None:
        self.http = http

    async def open(self, path: str, status: int = 200) -> Page:
        """Go to a page, by its path below /admin/."""
        return self._shown(await self.http.get(path if path.startswith("/") else f"/admin/{path}"), status)

    async def follow(self, page: Page, link: str) -> Page:
        """Follow a link."""
        there = page.link(link)
        assert there is not None, f"no link {link} on {page.path}"
        return self._shown(await self.http.get(httpx.URL(f"http://page{page.path}").join(there).raw_path.decode()), 200)

    async def press(self, page: Page, name: str, /, *, status: int = 200, **typed: str | list[str] | None) -> Page:
        """Press a button. A field that is None is not sent, as a box that is not ticked."""
        form, button = page.form_of(name), page.button(name)
        assert button is not None
        fields = _sent(form) | ({button.get("name", ""): button.get("value", "")} if button.get("name") else {})
        unknown = typed.keys() - {one.get("name") for one in form.iter()}
        assert not unknown, f"no fields {unknown} in the form of {name}"
        sent = {field: value for field, value in (fields | typed).items() if value is not None}
        action = button.get("formaction") or form.get("action") or page.path
        if form.get("method") == "post":
            return self._shown(await self.http.post(action, data=sent), status)
        return self._shown(await self.http.get(action, params=sent), status)

    @staticmethod
    def _shown(answer: httpx.Response, status: int) -> Page:
        page = Page(answer)
        assert page.status == status, f"{answer.request.method} {answer.url}: {page.status} {page.text}"
        return page


@asynccontextmanager
async def at_the_pages(service: Running, name: str, secret: str = PASSWORD) -> AsyncIterator[Operator]:
    """A user, or nobody with a key's secret, who has signed in."""
    headers = {"origin": service.url, "sec-fetch-site": "same-origin", "x-real-ip": f"10.9.0.{len(name) + 1}"}
    async with httpx.AsyncClient(base_url=service.url, headers=headers, timeout=35, follow_redirects=True) as http:
        answer = await http.post("/admin/sign-in", data={"name": name, "secret": secret}, follow_redirects=False)
        assert answer.status_code == 303, answer.text
        yield Operator(http)
