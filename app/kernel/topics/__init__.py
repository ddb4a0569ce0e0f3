"""The control plane: a topic's configuration, how it is kept, and how a process knows it without asking each time."""
