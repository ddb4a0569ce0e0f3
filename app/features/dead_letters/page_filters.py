"""Which dead letters are meant: what stands in addresses and in forms, and what it is to a requeue."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final
from urllib.parse import urlencode

import msgspec
from starlette.requests import Request

from app.errors import InvalidRequest
from app.features.jobs.operation_requests import queue_of_letters
from app.features.jobs.operations import Canary, Wanted
from app.features.jobs.redrive_rows import Filter
from app.http.context import Context
from app.kernel.topics.policy import Policy
from app.kernel.topics.settings import BIGINT_MAX
from app.pages.permissions import SEE, allows

MOST_CHARACTERS: Final = 1_024  # of a part of an error, a tag, a key or a tenant
MOST_SEQS: Final = 1_000
AGES: Final = {  # that can be asked for, in words and in ms
    "": ("At any time", 0),
    "1m": ("1 min ago or earlier", 60_000),
    "1h": ("1 h ago or earlier", 3_600_000),
    "1d": ("A day ago or earlier", 86_400_000),
    "7d": ("A week ago or earlier", 604_800_000),
}
_CLUSTER: Final = re.compile(r"[0-9a-f]{16}\Z")


class Asked(msgspec.Struct, frozen=True):
    """Jobs that are out and fit all of this, "" for any; or those of `seqs`, unless that is None."""

    cluster: str = ""
    error: str = ""
    tag: str = ""
    key: str = ""
    tenant: str = ""
    age: str = ""
    seqs: tuple[int, ...] | None = None

    @property
    def match(self) -> Filter:
        """The filter of a requeue."""
        return Filter(
            self.error or None,
            self.tag or None,
            self.key or None,
            self.tenant or None,
            self.cluster or None,
            AGES[self.age][1],
        )

    @property
    def given(self) -> dict[str, str]:
        """What is asked for, by the names that it has in addresses and forms."""
        if self.seqs is not None:
            return {"seqs": ",".join(map(str, self.seqs))}
        return {name: value for name, value in msgspec.structs.asdict(self).items() if value}

    def address(self, path: str, **more: str) -> str:
        """A page about it."""
        given = self.given | {name: value for name, value in more.items() if value}
        return path + (f"?{urlencode(given)}" if given else "")


def asked_of(given: Mapping[str, str], picked: Sequence[str] | None = None) -> Asked:
    """What an address or a form asks for. `picked` None: by what fits alone; else seqs that were picked one by one
    come to those that are named. Raises InvalidRequest."""
    if picked is not None and (picked or "seqs" in given):
        named = [*filter(None, given.get("seqs", "").split(",")), *picked]
        if len(named) > MOST_SEQS or not all(re.fullmatch("[0-9]{1,19}", one) for one in named):
            raise InvalidRequest(f"seqs are up to {MOST_SEQS} numbers.")
        return Asked(seqs=tuple(sorted({min(int(one), BIGINT_MAX) for one in named})))
    cluster, age = given.get("cluster", ""), given.get("age", "")
    if cluster and _CLUSTER.match(cluster) is None:
        raise InvalidRequest("A cluster's id has 16 hex digits.")
    if age not in AGES:
        raise InvalidRequest(f"age is one of {', '.join(filter(None, AGES))}.")
    error, tag, key, tenant = (_text(given, name) for name in ("error", "tag", "key", "tenant"))
    return Asked(cluster, error, tag, key, tenant, age)


def _text(given: Mapping[str, str], name: str) -> str:
    text = given.get(name, "")
    if len(text) > MOST_CHARACTERS or "\0" in text:
        raise InvalidRequest(f"{name} has {MOST_CHARACTERS} characters at most, and no NUL.")
    return text


async def wanted(
    context: Context,
    policy: Policy,
    asked: Asked,
    *,
    rate: int = 0,
    canary: Canary | None = None,
    starts: Sequence[str] = (),
) -> Wanted:
    """The requeue of it."""
    return Wanted(
        topic=(policy.topic.name, policy.topic.id),
        dead=await queue_of_letters(context, policy),
        match=asked.match,
        seqs=asked.seqs,
        rate=rate,
        canary=canary,
        starts=starts,
    )


def may_see_letters(request: Request, policy: Policy) -> bool:
    """Whether whoever asks may see where the topic's dead letters are, too."""
    dead = policy.config.dead_letter
    return dead is None or allows(request, SEE, dead)
