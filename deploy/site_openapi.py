"""The site's openapi.json: the OpenAPI document, made from the code."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from app.main import create_app
from app.settings import Settings


def on_post_build(*, config: Any, **_: Any) -> None:
    """Called by mkdocs once the pages are written."""
    document = create_app(Settings()).openapi()
    (Path(config.site_dir) / "openapi.json").write_text(json.dumps(document, ensure_ascii=False))
