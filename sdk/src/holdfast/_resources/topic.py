"""All calls on one topic: `client.topic("mail")`."""

from __future__ import annotations

from holdfast._resources.jobs import TopicJobs
from holdfast._resources.leases import LeasesOfTopics, TopicLeases
from holdfast._resources.records import TopicRecords
from holdfast._resources.settings import Topics, TopicSettings
from holdfast._resources.views import TopicViews
from holdfast._verbs import S


class Topic(TopicSettings[S], TopicRecords[S], TopicLeases[S], TopicJobs[S], TopicViews[S]):
    """One topic, by `name`. Making this object makes no call."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"


class AllTopics(Topics[S], LeasesOfTopics[S]):
    """All topics: `client.topics`."""
