"""The network matrix on Spark: delay and loss between sites by the hour, from the rows of `probes` and `paths`.

`network_matrix` returns one row per direction and hour, `shared_losses` the number of probes lost to one site that were
lost to another as well. `levelcast.network.measured.matrix` computes the rest from these rows, on the driver. A
direction that nodes have measured by their beats (`paths`) is taken from there: a minute of beats has as many samples
as ten minutes of probes, and each counts for one direction.

**Delay.** One way: by both clocks if a probe has it, else half of its round trip. Half of a round trip hides the
difference between the two directions, and the mean of two independent delays varies less than each.

**Loss.** A probe is lost in either direction: with a one-way loss p a fraction q = 1 − (1 − p)² is lost, so
p = 1 − √(1 − q). Timing uses the upper end of Wilson's interval (one-sided, 95 %): no loss among 60 probes does not
justify k_r = 1.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as f

from levelcast.network.measured.matrix import CONFIDENCE_Z, QUANTILES
from levelcast.pipeline.lake.tables import NETWORK_MATRIX

BUCKET_NS = 100_000
"""Width of a bucket of `paths`."""
HOUR_NS = 3_600_000_000_000
DAY_NS = 24 * HOUR_NS
ENOUGH = 100
EXACT = 100_000
"""Up to this number of probes of a pair and hour, quantiles are exact; above, to a ten-thousandth of the rank."""
ACCURACY = 10_000


# -- on Spark ---------------------------------------------------------------------------------------------


def network_matrix(probes: DataFrame, paths: DataFrame | None = None) -> DataFrame:
    """Return rows of `network_matrix`, from `paths` where it has the direction and hour."""
    if paths is None or paths.isEmpty():
        return matrix_of_probes(probes)
    measured = matrix_of_paths(paths)
    keys = ["from_site", "to_site", "start_ns"]
    return measured.unionByName(matrix_of_probes(probes).join(measured.select(*keys), keys, "left_anti"))


def matrix_of_paths(paths: DataFrame) -> DataFrame:
    """Return rows of `network_matrix` from the histograms of minutes: quantiles are exact to a bucket."""
    keys = ("from_site", "to_site", "start_ns")
    minutes = paths.withColumn("start_ns", f.expr(f"start_ns div {HOUR_NS} * {HOUR_NS}"))
    sums = minutes.groupBy(*keys).agg(
        f.sum("heard").alias("answered"),
        f.sum("lost").cast("double").alias("lost"),
        f.min("least_ns").alias("min_ns"),
    )
    buckets = (
        minutes.filter("heard > 0")
        .select(*keys, f.explode(f.split("delays", " ")).alias("part"))
        .select(*keys, f.expr("cast(split(part, ':')[0] as long)").alias("bucket"),
                f.expr("cast(split(part, ':')[1] as long)").alias("count"))
        .groupBy(*keys, "bucket")
        .agg(f.sum("count").alias("count"))
    )  # fmt: skip
    upto = Window.partitionBy(*keys).orderBy("bucket")
    whole = Window.partitionBy(*keys)
    reached = buckets.withColumns({"reached": f.sum("count").over(upto), "all": f.sum("count").over(whole)})
    late = {
        name: f.min(f.when(f.col("reached") >= f.col("all") * share, f.expr(f"(bucket + 1) * {BUCKET_NS}")))
        for share, name in QUANTILES.items()
    }
    quantiles = reached.groupBy(*keys).agg(*(value.alias(name) for name, value in late.items()))
    back = quantiles.select(
        f.col("from_site").alias("to_site"), f.col("to_site").alias("from_site"), "start_ns",
        f.col("p50_ns").alias("back_ns"),
    )  # fmt: skip
    found = (
        sums.join(quantiles, [*keys], "left")
        .join(back, [*keys], "left")
        .withColumn("tried", f.expr("answered + cast(lost as long)"))
        .withColumn("probes", f.col("tried"))
        .withColumn("loss_ratio", f.expr("case when tried > 0 then lost / tried end"))
        .withColumn("loss_upper", f.expr(f"case when tried > 0 then {_wilson('loss_ratio', 'tried')} end"))
        .withColumn("round_trip_ns", f.expr("p50_ns + coalesce(back_ns, p50_ns)"))
        .withColumn("both_clocks", f.lit(True))
        .withColumn("enough", f.col("answered") >= ENOUGH)
        .withColumn("day", f.expr(f"date_from_unix_date(cast(start_ns div {DAY_NS} as int))"))
    )
    return NETWORK_MATRIX.shape(found)


def matrix_of_probes(probes: DataFrame, *, exact: bool | None = None) -> DataFrame:
    """Return rows of `network_matrix`. The largest pair and hour decides if quantiles are exact, unless specified."""
    timed = _by_hour(probes).withColumn("delay_ns", f.expr("coalesce(one_way_ns, round_trip_ns div 2)"))
    keys = ("from_site", "to_site", "start_ns")
    if exact is None:
        largest = timed.groupBy(*keys).count().agg(f.max("count")).collect()[0][0]
        exact = (largest or 0) <= EXACT
    wanted = "array(0.5D, 0.9D, 0.99D, 0.999D)"
    how = f"percentile(delay_ns, {wanted})" if exact else f"percentile_approx(delay_ns, {wanted}, {ACCURACY})"
    found = (
        timed.groupBy(*keys)
        .agg(
            f.count("*").alias("probes"),
            f.count("delay_ns").alias("answered"),
            f.count("loss_ratio").alias("tried"),
            f.sum("loss_ratio").alias("lost"),
            f.min("delay_ns").alias("min_ns"),
            f.max("delay_ns").alias("max_ns"),
            f.expr(how).alias("at"),
            f.avg("round_trip_ns").alias("round_trip_ns"),
            f.expr("count(one_way_ns) = count(delay_ns) and count(delay_ns) > 0").alias("both_clocks"),
        )
        .withColumns({name: f.expr(f"ceil(at[{place}])") for place, name in enumerate([*QUANTILES.values()][:4])})
        .withColumn("share", f.expr("case when tried > 0 then lost / tried end"))
        .withColumn("loss_ratio", f.expr("1 - sqrt(1 - share)"))
        .withColumn("loss_upper", f.expr(f"case when tried > 0 then 1 - sqrt(1 - {_wilson('share', 'tried')}) end"))
        .withColumn("enough", f.col("answered") >= ENOUGH)
        .withColumn("day", f.expr(f"date_from_unix_date(cast(start_ns div {DAY_NS} as int))"))
    )
    return NETWORK_MATRIX.shape(found)


def shared_losses(probes: DataFrame) -> DataFrame:
    """Count, per hour and three sites, probes from one lost to `site` that went to `helper` too, and those lost there.

    Only lost probes are joined with the others of the same time, so the join is small if the loss is low.
    """
    told = _by_hour(probes).filter("loss_ratio is not null and from_site != to_site")
    lost = told.filter("loss_ratio >= 0.5").select("from_site", "at_ns", "start_ns", f.col("to_site").alias("site"))
    others = told.select("from_site", "at_ns", f.col("to_site").alias("helper"), f.col("loss_ratio").alias("too"))
    return (
        lost.join(others, ["from_site", "at_ns"])
        .filter("site != helper")
        .groupBy("start_ns", "from_site", "site", "helper")
        .agg(f.count("*").alias("tried"), f.sum(f.when(f.col("too") >= 0.5, 1).otherwise(0)).alias("both"))
    )


def _by_hour(probes: DataFrame) -> DataFrame:
    return probes.withColumn("start_ns", f.expr(f"at_ns div {HOUR_NS} * {HOUR_NS}"))


def _wilson(share: str, tried: str) -> str:
    """Return the upper end of Wilson's interval, in SQL."""
    z = CONFIDENCE_Z
    middle = f"({share} + {z * z / 2} / {tried})"
    width = f"{z} * sqrt({share} * (1 - {share}) / {tried} + {z * z / 4} / ({tried} * {tried}))"
    return f"least(1.0D, ({middle} + {width}) / (1 + {z * z} / {tried}))"
