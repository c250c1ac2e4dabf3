"""One clock for all queries over the same rows."""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame


def with_fixed_clock(frame: DataFrame) -> DataFrame:
    """Return the frame with `current_timestamp()` and its kin as they are now, in every query.

    Spark gives each query a clock of its own. Its own rule, applied here to the analysed plan,
    makes them constants that all queries over this frame share.
    """
    session = frame.sparkSession
    jvm: Any = session._jvm
    rules = "org.apache.spark.sql.catalyst.optimizer.ComputeCurrentTime$"
    rule = jvm.java.lang.Class.forName(rules).getField("MODULE$").get(None)
    plan = rule.apply(frame._jdf.queryExecution().analyzed())
    dataset = jvm.org.apache.spark.sql.classic.Dataset.ofRows(session._jsparkSession, plan)
    return DataFrame(dataset, session)
