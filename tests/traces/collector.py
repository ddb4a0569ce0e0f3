"""An OpenTelemetry collector: what spans are sent to, over OTLP/HTTP."""

from __future__ import annotations

import asyncio
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span as Told
from opentelemetry.proto.trace.v1.trace_pb2 import Status


class Seen:
    """A span that has arrived. Ids are hex; a parent of "" is none."""

    def __init__(self, told: Told, resource: dict[str, str]) -> None:
        self.resource = resource
        self.name = told.name
        self.trace, self.id, self.parent = told.trace_id.hex(), told.span_id.hex(), told.parent_span_id.hex()
        self.links = [(link.trace_id.hex(), link.span_id.hex()) for link in told.links]
        self.about = {
            one.key: getattr(one.value, one.value.WhichOneof("value") or "string_value") for one in told.attributes
        }
        self.failed = told.status.code == Status.STATUS_CODE_ERROR
        self.kind = Told.SpanKind.Name(told.kind).removeprefix("SPAN_KIND_")
        self.seconds = (told.end_time_unix_nano - told.start_time_unix_nano) / 1e9

    @property
    def ids(self) -> tuple[str, str]:
        return self.trace, self.id


class Collector:
    """Takes whatever is sent, while it is `up`."""

    def __init__(self) -> None:
        self.spans: list[Seen] = []
        self.bodies: list[bytes] = []
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                assert self.path == "/v1/traces"
                collector.take(body)
                self.send_response(200)
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:
                """Nobody reads it."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def take(self, body: bytes) -> None:
        request = ExportTraceServiceRequest()
        request.ParseFromString(body)
        self.bodies.append(body)
        for of in request.resource_spans:
            resource = {one.key: one.value.string_value for one in of.resource.attributes}
            self.spans += [Seen(span, resource) for scope in of.scope_spans for span in scope.spans]

    async def named(self, name: str, count: int = 1) -> list[Seen]:
        """The spans of this name, once there are so many."""
        async with asyncio.timeout(30):
            while len(found := [span for span in self.spans if span.name == name]) < count:
                await asyncio.sleep(0.01)
        assert len(found) == count, [span.about for span in found]
        return found

    def down(self) -> None:
        self._server.shutdown()
        self._server.server_close()
