"""Metrics out of a running job: to files, to Prometheus, to InfluxDB. The job handle opens and closes them."""
