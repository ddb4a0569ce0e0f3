"""jqueue-compatible queues. A queue is a topic, and a job's entrypoint is its tag."""
