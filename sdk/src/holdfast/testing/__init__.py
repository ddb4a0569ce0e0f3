"""Tests on the real service: one of their own, on a PostgreSQL of its own, started in less than two seconds.

def test_a_letter_is_sent(holdfast_service):
    ...

The fixture comes with the extra `testing`; without pytest it is `with start() as service:`. docs/testing.md.
"""

try:
    import asyncpg  # noqa: F401
except ImportError:
    raise ImportError("holdfast.testing needs the package's extra: testing") from None

from holdfast.testing._clock import Clock
from holdfast.testing._home import ServiceMissing
from holdfast.testing._service import NotEmpty, Service, start

__all__ = ["Clock", "NotEmpty", "Service", "ServiceMissing", "start"]
