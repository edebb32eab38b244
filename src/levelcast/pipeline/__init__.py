"""What runs on Spark: tapes and captures as rows of one schema, the lake and its tables, audits (`audit`), the network
matrix, channel plans of large interest tables, sweeps, and the page about all of it (`report`).

The only package that imports pyspark. Functions from DataFrame to DataFrame; `session` makes the session, and
`register(spark)` makes `spark.read.format("levelcast")` work in it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["register"]


def register(spark: SparkSession) -> None:
    """Make the data source `levelcast` known to a session (`levelcast.pipeline.input.tape_source`)."""
    from levelcast.pipeline.input.tape_source import register as to_spark

    to_spark(spark)
