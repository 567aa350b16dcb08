"""Engines behind one interface: what the benchmark runner and packages with engines of their own import."""

from penstock.bench.engines.base import Engine, Observation, Output, RunOptions
from penstock.bench.engines.registry import engine_names, open_engine
from penstock.bench.engines.subjects import Subject, subject

__all__ = ["Engine", "Observation", "Output", "RunOptions", "Subject", "engine_names", "open_engine", "subject"]
