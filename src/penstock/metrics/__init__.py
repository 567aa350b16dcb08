"""What is measured: histograms and per-operation figures; filled by the engine, read by the monitor and the reports."""

from penstock.metrics.histogram import Histogram
from penstock.metrics.stats import OpStats

__all__ = ["Histogram", "OpStats"]
