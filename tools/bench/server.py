"""The service as it is served, and beside it a route that parses a record and answers, without a queue behind it.

Run as `python -m tools.bench.server <database url> <fd of the listening socket> <fd of the lifeline>`.
"""

from __future__ import annotations

import socket
import sys
import time

import msgspec
from fastapi import FastAPI
from pydantic import SecretStr
from starlette.requests import Request
from starlette.responses import Response

from app.http.body import read_json
from app.http.route import Direct
from app.http.v0.dialect import answer
from app.http.v0.records import AppendBody
from app.main import create_app
from app.serve import server
from app.settings import Settings

_body = msgspec.json.Decoder(AppendBody)


async def no_op(request: Request) -> Response:
    """Read, parse, answer: the most that this server can do with a request."""
    began = time.perf_counter()
    body = await read_json(request, _body, 64 * 1024 * 1024)
    return answer(b'"count":%d' % len(body.records), began)


def build(settings: Settings) -> FastAPI:
    """The service with the no-op route, where the first of its own routes stands: as FastAPI makes routes, and as the
    service does."""
    app = create_app(settings)
    app.add_api_route("/no-op/{topic}", no_op, methods=["POST"], response_class=Response)
    app.router.routes.insert(0, app.router.routes.pop())
    app.router.routes.insert(0, Direct("/direct-no-op/{topic}", no_op, methods=["POST"]))
    return app


if __name__ == "__main__":
    url, fd, lifeline = sys.argv[1:]
    listener = socket.socket(fileno=int(fd))
    sys.exit(server.run(Settings(database_url=SecretStr(url)), listener, int(lifeline), build))
