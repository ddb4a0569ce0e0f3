"""The data source `holdfast`: the queue's tables as frames, and frames as jobs."""
