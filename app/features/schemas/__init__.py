"""Routes of topics' schemas."""
