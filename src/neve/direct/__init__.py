"""Telemetry into tables or plain Parquet without Spark: from a small job, or on AWS Lambda.

At least once: there is no buffer, so that a client's retry of a request whose answer was lost may
store it twice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from neve.direct.batching import BatchingWriter
from neve.direct.results import RequestResult, TableResult
from neve.direct.writer import Writer

if TYPE_CHECKING:
    from neve.direct.aws_lambda import lambda_handler

__all__ = ["BatchingWriter", "RequestResult", "TableResult", "Writer", "lambda_handler"]


def __getattr__(name: str) -> Any:
    """Import the handler when AWS Lambda asks for it: it configures logging."""
    if name == "lambda_handler":
        from neve.direct.aws_lambda import lambda_handler

        return lambda_handler
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
