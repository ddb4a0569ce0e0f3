"""Does the service run, and can it work: verbs of the client itself."""

from __future__ import annotations

from holdfast import models
from holdfast._verbs import Resource, S, verb
from holdfast._wire import Request, path, reads


class Health(Resource[S]):
    """What is asked of the whole service."""

    @verb
    def health(self) -> Request[models.Health]:
        """Does the process run."""
        return Request("GET", path("health"), reads(models.Health))

    @verb
    def ready(self) -> Request[models.Ready]:
        """Does its database answer; Unavailable if not."""
        return Request("GET", path("ready"), reads(models.Ready))

    @verb
    def metrics(self) -> Request[str]:
        """What it counts of itself, in Prometheus' text format."""
        return Request("GET", "/metrics", lambda reply: str(reply.body), headers={"accept": "text/plain"}, text=True)
