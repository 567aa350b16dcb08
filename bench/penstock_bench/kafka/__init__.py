"""Engines over Kafka: all read one topic and write to another, and one outside reader takes the latency.

No engine makes its own events, and none stamps its own results.
"""
