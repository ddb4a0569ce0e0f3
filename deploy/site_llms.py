"""The site's llms.txt, an index of the pages by kind, and llms-full.txt, all pages as one text."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

INDEX = "README.md"
SUMMARY = """\
Holdfast is a job queue service on PostgreSQL, for HTTP, Python and SQL. Jobs are leased and fenced, and delivered at
least once; a durable topic loses no acknowledged job. It has priorities, groups, tenants, schedules, retries, dead
letters, results, webhooks, keys, users and admin pages. llms-full.txt has the text of all pages."""
_ROW = re.compile(r"^\| \[([^\]]+)\]\(([^)]+)\) \| (.+) \|$")


def index(docs: Path, title: str) -> str:
    """llms.txt: the pages in the manual's index under its headings, each with a link and a description."""
    lines = [f"# {title}", "", f"> {' '.join(SUMMARY.split())}"]
    for line in (docs / INDEX).read_text().splitlines():
        if line.startswith("## "):
            lines += ["", line, ""]
        elif row := _ROW.match(line):
            name, target, about = row.groups()
            if not target.startswith("../"):
                lines.append(f"- [{name.removesuffix('.md')}]({_address(target)}): {about}")
    return "\n".join(lines) + "\n"


def full(docs: Path) -> str:
    """llms-full.txt: the text of every page, first those in the index, in its order."""
    linked = re.findall(r"\]\(([^)#:]+\.md)", (docs / INDEX).read_text())
    others = sorted(path.relative_to(docs).as_posix() for path in docs.rglob("*.md"))
    pages = [page for page in dict.fromkeys([INDEX, *linked, *others]) if (docs / page).is_file() and ".." not in page]
    return "\n".join(f"<!-- {page} -->\n\n{(docs / page).read_text().strip()}\n" for page in pages)


def _address(target: str) -> str:
    """The page's address in the site."""
    return re.sub(r"\.md\b", ".html", re.sub(r"README\.md\b", "index.md", target))


def on_post_build(*, config: Any, **_: Any) -> None:
    """Called by mkdocs once the pages are written."""
    docs, site = Path(config.docs_dir), Path(config.site_dir)
    (site / "llms.txt").write_text(index(docs, config.site_name))
    (site / "llms-full.txt").write_text(full(docs))
