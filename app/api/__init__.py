"""The JSON edges: they validate and shape, and leave the work to the engine."""
