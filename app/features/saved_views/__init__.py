"""Views of pages that are kept by name."""
