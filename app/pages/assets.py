"""The files that browsers load: all of them from here, kept for a year under an address that changes with them."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from app.errors import NotFound

_FOLDER: Final = Path(__file__).parent / "static"
_KINDS: Final = {".css": "text/css", ".js": "text/javascript", ".txt": "text/plain"}
FILES: Final = {
    path.relative_to(_FOLDER).as_posix(): path.read_bytes() for path in sorted(_FOLDER.rglob("*")) if path.is_file()
}
# One for all: a file may load another by a relative address.
VERSION: Final = hashlib.sha256(b"\0".join(name.encode() + b"\0" + FILES[name] for name in FILES)).hexdigest()[:12]
_FOR_EVER: Final = "public, max-age=31536000, immutable"


def address(name: str) -> str:
    """Where a file is. Raises KeyError if there is none."""
    if name not in FILES:
        raise KeyError(name)
    return f"/admin/static/{VERSION}/{name}"


async def serve(request: Request) -> Response:
    """A file. One of another version, which another process may have named, is today's and not kept."""
    name = request.path_params["name"]
    content = FILES.get(name)
    if content is None:
        raise NotFound(f"There is no file {name[:100]!r}.")
    kept = request.path_params["version"] == VERSION
    headers = {"cache-control": _FOR_EVER if kept else "no-store", "x-content-type-options": "nosniff"}
    return Response(content, media_type=_KINDS[Path(name).suffix], headers=headers)
