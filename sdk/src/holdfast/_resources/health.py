"""Health checks and metrics: methods of the client itself."""

from __future__ import annotations

from holdfast import models
from holdfast._verbs import Resource, S, verb
from holdfast._wire import Request, path, reads


class Health(Resource[S]):
    """Calls about the whole service."""

    @verb
    def health(self) -> Request[models.Health]:
        """Check that the process runs."""
        return Request("GET", path("health"), reads(models.Health))

    @verb
    def ready(self) -> Request[models.Ready]:
        """Check that the service's database answers. Raises Unavailable if not."""
        return Request("GET", path("ready"), reads(models.Ready))

    @verb
    def metrics(self) -> Request[str]:
        """The service's metrics, in Prometheus' text format."""
        return Request("GET", "/metrics", lambda reply: str(reply.body), headers={"accept": "text/plain"}, text=True)
