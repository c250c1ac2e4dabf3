"""Rows of this process as a DataFrame."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame
from pyspark.sql.pandas.serializers import ArrowStreamSerializer
from pyspark.sql.pandas.types import to_arrow_schema

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

_LARGE_TYPES = "spark.sql.execution.arrow.useLargeVarTypes"


def local_rows(session: SparkSession, rows: pa.Table, schema: StructType) -> DataFrame:
    """Return rows as a DataFrame whose plan holds them: reading it needs nothing but Spark.

    PySpark's `createDataFrame` would take times without a zone for those of the session, and
    rebuilds nested columns.
    """
    large = session.conf.get(_LARGE_TYPES, "false") == "true"
    batches = rows.cast(to_arrow_schema(schema, prefers_large_types=large)).to_batches()
    jvm: Any = session._jvm
    context: Any = session.sparkContext
    java = context._serialize_to_jvm(
        batches,
        ArrowStreamSerializer(),
        jvm.PythonSQLUtils.readArrowStreamFromFile,
        jvm.ArrowIteratorServer,
    )
    frame = jvm.PythonSQLUtils.toDataFrame(java, schema.json(), session._jsparkSession)
    return DataFrame(frame, session)
