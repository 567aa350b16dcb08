"""Workloads written as files: read, checked, run and verified without code of the user's."""

from penstock.bench.files.describe import describe
from penstock.bench.files.load import Description, load
from penstock.bench.files.problems import Problem, WorkloadRefused
from penstock.bench.files.workload import FileWorkload, Own, file_workload

__all__ = ["Description", "FileWorkload", "Own", "Problem", "WorkloadRefused", "describe", "file_workload", "load"]
