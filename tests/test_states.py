"""The picture of a job's states has those of the schema, and the arrows of docs/semantics.md, which has all events."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final
from xml.etree import ElementTree

from app.features.jobs.filters import STATES

ROOT: Final = Path(__file__).parents[1]
SVG: Final = "{http://www.w3.org/2000/svg}"
OUTSIDE: Final = "[*]"  # before it is enqueued, and once its row is gone
# A dead letter is no state: it is a ready job of another topic, where its way begins anew.
MOVED: Final = "moved"

Arrow = tuple[str, str]


def picture() -> ElementTree.Element:
    return ElementTree.fromstring((ROOT / "docs/pictures/states.svg").read_text())


def arrows_of_the_picture() -> set[Arrow]:
    """One for each pair: an arrow from a box of several states is one of each."""
    paths = [path for path in picture().iter(f"{SVG}path") if "data-from" in path.attrib]
    return {(a, b) for path in paths for a in path.attrib["data-from"].split() for b in path.attrib["data-to"].split()}


def arrows_of_the_page() -> set[Arrow]:
    page = (ROOT / "docs/semantics.md").read_text()
    [diagram] = re.findall(r"^```mermaid\nstateDiagram-v2\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    found = re.findall(r"^ +(\S+) --> (\S+): \S", diagram, re.MULTILINE)
    assert len(found) == diagram.count("\n"), "a line that is no arrow"
    return {(a, b) for a, b in found}


def values_of_the_schema(type_: str) -> set[str]:
    schema = (ROOT / "docs/schema.sql").read_text()
    [values] = re.findall(rf"CREATE TYPE holdfast\.{type_} AS ENUM \((.*?)\);", schema, re.DOTALL)
    return set(re.findall(r"'(\w+)'", values))


def states_of_the_schema() -> set[str]:
    return values_of_the_schema("job_state")


def test_its_states_are_the_schemas_and_those_that_routes_know() -> None:
    drawn = {rect.attrib["data-state"] for rect in picture().iter(f"{SVG}rect") if "data-state" in rect.attrib}
    assert drawn - {MOVED} == states_of_the_schema()
    # `cancelled` is what routes call a job whose holder has not heard of it yet: its row is leased, then gone.
    assert states_of_the_schema() == set(STATES) - {"cancelled"}


def test_the_page_names_every_event() -> None:
    [named] = re.findall(r"^Events: (.*?)\. A job", (ROOT / "docs/semantics.md").read_text(), re.MULTILINE | re.DOTALL)
    assert set(re.findall(r"`(\w+)`", named)) == values_of_the_schema("job_event")


def test_its_arrows_are_those_of_the_page() -> None:
    page = arrows_of_the_page()
    assert (MOVED, OUTSIDE) in page
    assert arrows_of_the_picture() == page - {(MOVED, OUTSIDE)}


def test_every_state_is_entered_and_left() -> None:
    arrows = arrows_of_the_page()
    assert {a for a, _ in arrows} == {b for _, b in arrows} == states_of_the_schema() | {MOVED, OUTSIDE}


def test_it_is_told_to_who_does_not_see_it_and_has_a_dark_side() -> None:
    [text] = picture().findall(f"{SVG}desc")
    assert text.text
    assert all(word in text.text for word in states_of_the_schema())
    [style] = picture().findall(f"{SVG}style")
    light, dark = (style.text or "").split("@media (prefers-color-scheme: dark)")
    colours = [set(re.findall(r"(--[\w-]+): #", part)) for part in (light, dark)]
    assert colours[0] == colours[1] != set()
    assert re.findall(r'(?:fill|stroke)="#', (ROOT / "docs/pictures/states.svg").read_text()) == []
