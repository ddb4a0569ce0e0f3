"""A WebSocket with limits on its client's messages and on the time to read. Imported with the first WebSocket."""

from __future__ import annotations

import logging
from typing import Any, Final

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.server import ServerProtocol

from app.base.signals import Signal
from app.settings import Settings

MAX_MESSAGE_BYTES: Final = 4 * 1024  # clients need not send anything
MAX_UNREAD_BYTES: Final = 1024 * 1024  # unread answers to pings
LAST_WORD_SECONDS: Final = 0.5  # for the application's last message at a stop

# uvicorn and the library would log targets, which contain tokens.
log = logging.getLogger(__name__)
log.setLevel(logging.WARNING)


class BoundedSocket(WebSocketsSansIOProtocol):
    """One connection after its upgrade."""

    def __init__(self, limits: Settings, **protocol: Any) -> None:
        super().__init__(**protocol)
        self.ended: Signal[()] = Signal()
        self.logger = log
        self.conn = ServerProtocol(max_size=MAX_MESSAGE_BYTES, logger=log)
        self._limits = limits
        self._unread = 0  # bytes in the buffer at the last check
        self._since = 0.0  # the last check at which the client had read something

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self.ended.emit()

    def shutdown(self) -> None:
        # The application has been notified. It sends the reason and closes the connection.
        self.loop.call_later(LAST_WORD_SECONDS, self._shut)

    def _shut(self) -> None:
        if not self.disconnected:
            super().shutdown()

    def data_received(self, data: bytes) -> None:
        if self.transport.get_write_buffer_size() > MAX_UNREAD_BYTES:
            self.transport.abort()
        else:
            super().data_received(data)

    def look(self, now: float) -> None:
        """Close the connection if its client reads nothing for too long. `now`: of the event loop's clock."""
        before, self._unread = self._unread, self.transport.get_write_buffer_size()
        if not before or self._unread < before:
            self._since = now
        elif now - self._since >= self._limits.write_seconds:
            self.transport.abort()
