"""Requeues and cancels of many under way: `client.operations`."""

from __future__ import annotations

from holdfast import models
from holdfast._verbs import Resource, S, verb
from holdfast._wire import Request, path, reads


class Operations(Resource[S]):
    """Operations, by id."""

    @verb
    def get(self, id: str) -> Request[models.Operation]:
        """How far it is."""
        return Request("GET", path("operations", id), reads(models.Operation))

    @verb
    def cancel(self, id: str) -> Request[models.Operation]:
        """End it after the batch that it is at."""
        return Request("POST", path("operations", id, "cancel"), reads(models.Operation))
