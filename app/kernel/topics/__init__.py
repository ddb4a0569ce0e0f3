"""Topics: their settings, how they are stored, and how processes cache them."""
