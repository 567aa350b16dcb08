"""``ps.register``: makes the data source known to a session; apart from it, because that one imports Spark's SQL."""

from __future__ import annotations

from typing import Any

from penstock.errors import InvalidOption


def register(spark: Any) -> None:
    """Let a Spark session read the committed output of jobs: ``spark.read.format("penstock").load(path)``.

    Parameters
    ----------
    spark : SparkSession
        The session; ``spark.read`` and ``spark.readStream`` know the format from then on. ``path`` is the directory of
        a :func:`files` sink, which a job may be writing to. A stream's offset is the epoch.

    Examples
    --------
    >>> ps.register(spark)                                                                # doctest: +SKIP
    >>> spark.read.format("penstock").load("out").where("count > 10").show()              # doctest: +SKIP
    >>> spark.readStream.format("penstock").load("out").writeStream.toTable("counts")     # doctest: +SKIP
    """
    if not hasattr(spark, "dataSource"):
        raise InvalidOption(option="spark", given=spark, allowed="a SparkSession")
    from penstock.spark.datasource import PenstockSource

    spark.dataSource.register(PenstockSource)
