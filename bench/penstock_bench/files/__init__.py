"""Workloads written as files: read, checked, run and verified without code of the user's."""

from penstock_bench.files.describe import describe
from penstock_bench.files.load import Description, load
from penstock_bench.files.problems import Problem, WorkloadRefused
from penstock_bench.files.workload import FileWorkload, Own, file_workload

__all__ = ["Description", "FileWorkload", "Own", "Problem", "WorkloadRefused", "describe", "file_workload", "load"]
