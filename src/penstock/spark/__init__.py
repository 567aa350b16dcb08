"""What Spark computes for Penstock: a pipeline's graph as DataFrames, tables, sinks and sources that are Spark's.

Everything here imports pyspark when it is called and not before: a worker that needs none of it does not pay for it.
"""
