"""What nobody foresaw, as it is logged, and as its caller is told."""

from __future__ import annotations

import logging

from starlette.requests import Request

from app.base.log import ID, route_of
from app.errors import HoldfastError

log = logging.getLogger(__name__)


def fault_of(request: Request, error: Exception) -> HoldfastError:
    """Log an error that is none of this service's own; what its caller is told, by which the line can be found."""
    log.error("%s %s failed", request.method, route_of(request.scope) or "an unknown path", exc_info=error)
    named = request.scope[ID].decode()
    return HoldfastError(f"Something went wrong here; the service's log says what, of request {named}.")
