"""Jobs one by one and many at a time: found, changed, cancelled, requeued, released."""
