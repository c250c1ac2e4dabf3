"""Telemetry into tables or plain Parquet without Spark: from a small job, or on AWS Lambda.

At least once: there is no buffer, so that a client's retry of a request whose answer was lost may
store it twice.
"""

from __future__ import annotations

from neve.direct.batching import BatchingWriter
from neve.direct.results import RequestResult, TableResult
from neve.direct.writer import Writer

__all__ = ["BatchingWriter", "RequestResult", "TableResult", "Writer"]
