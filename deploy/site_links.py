"""Replaces links of the manual that lead out of docs/: they work on a code host, and on the site become the path."""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
LINK = re.compile(r"\[([^\]]+)\]\(((?:\.\./)+[^)\s#]*)(?:#[^)\s]*)?\)")
log = logging.getLogger("mkdocs.hooks.site_links")


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Called by mkdocs for each page. A link to a missing file is a warning, which fails a strict build."""
    folder = Path(page.file.abs_src_path).parent

    def shown(link: re.Match[str]) -> str:
        text, target = link[1], (folder / link[2]).resolve()
        if target.is_relative_to(ROOT / "docs"):
            return link[0]
        if not target.exists():
            log.warning("%s links to %s, which does not exist", page.file.src_path, target)
        return text if target.name in text else f"{text} (`{target.relative_to(ROOT)}`)"

    return LINK.sub(shown, markdown)
