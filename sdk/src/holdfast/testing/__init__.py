"""Tests against a real service on its own PostgreSQL, which starts in less than two seconds.

def test_a_letter_is_sent(holdfast_service):
    ...

The fixture needs the extra `testing`. Without pytest use `with start() as service:`. docs/testing.md.
"""

try:
    import asyncpg  # noqa: F401
except ImportError:
    raise ImportError("holdfast.testing needs the package's extra: testing") from None

from holdfast.testing._clock import Clock
from holdfast.testing._home import ServiceMissing
from holdfast.testing._service import NotEmpty, Service, start

__all__ = ["Clock", "NotEmpty", "Service", "ServiceMissing", "start"]
