"""Background requeues and cancels: `client.operations`."""

from __future__ import annotations

from holdfast import models
from holdfast._verbs import Resource, S, verb
from holdfast._wire import Request, path, reads


class Operations(Resource[S]):
    """Operations, by id."""

    @verb
    def get(self, id: str) -> Request[models.Operation]:
        """An operation's state and progress."""
        return Request("GET", path("operations", id), reads(models.Operation))

    @verb
    def cancel(self, id: str) -> Request[models.Operation]:
        """Stop an operation after its current batch."""
        return Request("POST", path("operations", id, "cancel"), reads(models.Operation))
