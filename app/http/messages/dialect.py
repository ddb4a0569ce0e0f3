"""The messages dialect: what a route gives is written as it is."""

from __future__ import annotations

from typing import Final

from app.http.messages.errors import MessagesError
from app.http.route import Dialect

MESSAGES: Final = Dialect("messages", MessagesError, one_tag=True)
