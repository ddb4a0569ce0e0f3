"""Alerts and dashboards: by promtool, by what they name, and by a Prometheus that has scraped a service."""
