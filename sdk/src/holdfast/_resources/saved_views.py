"""Saved views of the admin pages: `client.saved_views`."""

from __future__ import annotations

from holdfast import models
from holdfast._verbs import Resource, S, verb
from holdfast._wire import Request, encode, path, reads


class SavedViews(Resource[S]):
    """The caller's saved views, by name."""

    @verb
    def all(self) -> Request[models.SavedViews]:
        """All saved views of the caller, by name."""
        return Request("GET", path("views"), reads(models.SavedViews))

    @verb
    def save(self, name: str, address: str) -> Request[models.SavedView]:
        """Save an address that starts with `/admin/` under a name, or replace it."""
        return Request("PUT", path("views", name), reads(models.SavedView), body=encode({"address": address}))

    @verb
    def delete(self, name: str) -> Request[models.SavedView]:
        """Delete a saved view. Returns it."""
        return Request("DELETE", path("views", name), reads(models.SavedView))
