"""What knows nothing of queues."""
