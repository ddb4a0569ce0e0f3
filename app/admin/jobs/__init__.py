"""The jobs of a topic, and one of them: what they are, what became of them, and what people do to them."""
