"""Addresses of the admin pages that one has saved: `client.saved_views`."""

from __future__ import annotations

from holdfast import models
from holdfast._verbs import Resource, S, verb
from holdfast._wire import Request, encode, path, reads


class SavedViews(Resource[S]):
    """One's own, by name."""

    @verb
    def all(self) -> Request[models.SavedViews]:
        """All of them, by name."""
        return Request("GET", path("views"), reads(models.SavedViews))

    @verb
    def save(self, name: str, address: str) -> Request[models.SavedView]:
        """Give an address, from `/admin/` on, a name, or another one to a name."""
        return Request("PUT", path("views", name), reads(models.SavedView), body=encode({"address": address}))

    @verb
    def delete(self, name: str) -> Request[models.SavedView]:
        """Delete one: as it was."""
        return Request("DELETE", path("views", name), reads(models.SavedView))
