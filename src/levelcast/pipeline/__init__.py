"""Jobs on Spark: `input` reads tapes and captures, `lake` stores tables, `derive` and `jobs` compute the derived ones.
`audit`, `matrix`, `channels` and `sweep` are separate jobs; `report` renders the page about all of them.

The only package that imports pyspark and deltalake; only `cli` imports it. Functions map DataFrame to DataFrame;
`session` creates the session, and `register(spark)` enables `spark.read.format("levelcast")` in it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["register"]


def register(spark: SparkSession) -> None:
    """Register the data source `levelcast` with a session (`levelcast.pipeline.input.tape_source`)."""
    from levelcast.pipeline.input.tape_source import register as to_spark

    to_spark(spark)
