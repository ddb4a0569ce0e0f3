"""W3C trace context, as it travels in the metadata of jobs: `traceparent`, and `tracestate` where there is one."""

from __future__ import annotations

import re
from typing import Final

try:
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
except ImportError:
    _propagator = None
else:
    _propagator = TraceContextTextMapPropagator()

_TRACEPARENT: Final = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")


def context(traceparent: str | None) -> dict[str, str]:
    """What to put into metadata: what was given, else OpenTelemetry's current context, if that is installed and has
    one. Raises ValueError for a traceparent that is none."""
    carrier: dict[str, str] = {}
    if traceparent is not None:
        if not _TRACEPARENT.fullmatch(traceparent):
            raise ValueError(f"no traceparent: {traceparent!r:.100}")
        carrier["traceparent"] = traceparent
    elif _propagator is not None:
        _propagator.inject(carrier)
    return carrier
