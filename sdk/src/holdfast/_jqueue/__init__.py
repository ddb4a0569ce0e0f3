"""Queues of jqueue's shape: a queue is a topic, and a job's entrypoint is its tag."""
