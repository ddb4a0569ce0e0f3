"""How topics are doing: overview, history, what to scale by."""
