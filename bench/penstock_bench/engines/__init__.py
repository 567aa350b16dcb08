"""Engines behind one interface: what the benchmark runner and packages with engines of their own import."""

from penstock_bench.engines.registry import engine_names, open_engine
from penstock_bench.engines.subjects import subject
from penstock_bench.meter.engine import Engine, Observation, Output, RunOptions
from penstock_bench.meter.subject import Subject

__all__ = ["Engine", "Observation", "Output", "RunOptions", "Subject", "engine_names", "open_engine", "subject"]
