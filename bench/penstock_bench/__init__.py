"""Benchmarks: the workloads, and how they are run and measured."""
