"""The messages dialect: what a route gives is written as it is."""

from __future__ import annotations

from typing import Final

from app.http.messages.errors import MessagesError, write_error
from app.http.route import Dialect

MESSAGES: Final = Dialect("messages", MessagesError, write_error=write_error, one_tag=True)
