"""The manual as a site: it builds without a warning, loads nothing from other hosts, and has the index's pages."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.routes import document

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
KINDS = ("Learn", "Do", "Look up", "Understand")
LINKED = re.compile(r"\]\(([^)#:]+\.md)(?:#[^)]*)?\)")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Builds the site strictly: a broken link or anchor, or a page missing in the navigation, fails the build."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    env = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    built = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stdout + built.stderr
    return folder


@pytest.mark.slow
def test_every_page_is_a_page_of_the_site(site: Path) -> None:
    pages = {path.relative_to(DOCS).with_suffix(".html").as_posix() for path in DOCS.rglob("*.md")}
    assert len(pages) > 60
    assert [page for page in pages if not (site / page.replace("README.html", "index.html")).is_file()] == []


def test_it_has_the_openapi_document(site: Path) -> None:
    assert json.loads((site / "openapi.json").read_text()) == document()


def test_it_has_an_index_and_the_whole_text(site: Path) -> None:
    """llms.txt links every page of the manual's index by its kind; llms-full.txt has every page's text."""
    index, full = (site / "llms.txt").read_text(), (site / "llms-full.txt").read_text()
    assert re.findall(r"^#+ .+$", index, re.MULTILINE) == ["# Holdfast", *map("## {}".format, KINDS)]
    assert index.splitlines()[2].startswith("> Holdfast is ")
    links = re.findall(r"^- \[[^\]]+\]\(([^)]+)\): \S", index, re.MULTILINE)
    assert len(links) > 80
    assert [link for link in links if not (site / link).is_file()] == []
    assert [str(page) for page in DOCS.rglob("*.md") if page.read_text().strip() not in full] == []


def test_it_asks_no_other_host(site: Path) -> None:
    """Links can lead anywhere; scripts, images, frames and styles must be local."""
    loads = re.compile(r"""<(?:script|img|iframe)[^>]*\ssrc=["']?(?:https?:)?//|<link[^>]*\shref=["']?(?:https?:)?//""")
    styles = re.compile(r"(?:url\(|@import\s*)[\"']?(?:https?:)?//")
    pages = list(site.rglob("*.html"))
    assert len(pages) > 60
    assert [str(page) for page in pages if loads.search(page.read_text())] == []
    assert [str(sheet) for sheet in site.rglob("*.css") if styles.search(sheet.read_text())] == []


def test_the_navigation_has_the_kinds_of_the_index() -> None:
    names = re.findall(r"^  - ([^:\n]+):$", (ROOT / "mkdocs.yml").read_text().partition("\nnav:\n")[2], re.MULTILINE)
    assert names == list(KINDS) == re.findall(r"^## (.+)$", (DOCS / "README.md").read_text(), re.MULTILINE)


def test_the_index_has_every_page() -> None:
    """A code host shows no navigation."""
    found = {(DOCS / link).resolve() for link in LINKED.findall((DOCS / "README.md").read_text())}
    missing = {path.resolve() for path in DOCS.rglob("*.md")} - found - {DOCS / "README.md"}
    assert sorted(str(path.relative_to(DOCS)) for path in missing) == []


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md", "sdk/README.md"])
def test_what_a_page_outside_of_the_manual_links_to_is_there(page: str) -> None:
    """The strict build checks the pages in docs/."""
    text = (ROOT / page).read_text()
    targets = [target for target in re.findall(r"\]\(([^)\s]+)\)", text) if not target.startswith(("http", "mailto:"))]
    missing = []
    for target in targets:
        name, _, anchor = target.partition("#")
        path = ((ROOT / page).parent / name).resolve() if name else ROOT / page
        if not path.exists() or (anchor and anchor not in headings(path)):
            missing.append(target)
    assert missing == []
    assert len(targets) > 30 or page != "README.md"


def headings(page: Path) -> set[str]:
    """The anchors of its headings, as on code hosts."""
    found = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in found}
