"""Jobs from senders that speak neither dialect."""
