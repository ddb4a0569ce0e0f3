"""Ids of jobs: UUIDs of version 8 (RFC 9562) that say which job is meant, so that they need no index.

    xxxxxxxx-0000-800s-8sss-ssssssssssss        x: the topic's id, 32 bits   s: the job's seq, 63 bits

s has 1 bit of its own in the third group, 2 bits and 60 in the rest: what is left over is 0, and version and variant
are where the RFC has them. Any other UUID is no id of a job.
"""

from __future__ import annotations

from typing import Final

LOW: Final = (1 << 62) - 1
_VARIANT: Final = 0b10 << 62


def id_of(topic_id: int, seq: int) -> str:
    """The id of a job, a message of that dialect; of a dead letter, that of the job that it was at first."""
    low = f"{_VARIANT | seq & LOW:016x}"
    return f"{topic_id:08x}-0000-800{seq >> 62:x}-{low[:4]}-{low[4:]}"
