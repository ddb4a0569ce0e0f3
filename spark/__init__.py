"""Spark on the queue's tables: a data source, and pipelines. `python -m spark --help` names them."""
