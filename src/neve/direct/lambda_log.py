"""Logs of a function on AWS Lambda: JSON objects on standard error, each with its request's id."""

from __future__ import annotations

import logging
import os
import sys
from contextvars import ContextVar
from typing import TYPE_CHECKING

from neve.observe.json_log import FIELDS, JsonFormatter

if TYPE_CHECKING:
    from neve.observe.json_log import Mask

# What the function's LoggingConfig says, in Lambda's words.
LEVEL_VARIABLE = "AWS_LAMBDA_LOG_LEVEL"
_LEVELS = {"TRACE": logging.DEBUG, "WARN": logging.WARNING, "FATAL": logging.CRITICAL}

_request_id: ContextVar[str | None] = ContextVar("neve-request-id", default=None)


def log_as_json(mask: Mask) -> None:
    """Log Neve's own words as JSON, without what `mask` hides."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter(mask))
    handler.addFilter(_add_request_id)
    own = logging.getLogger("neve")
    own.handlers = [handler]
    own.setLevel(_level(os.environ.get(LEVEL_VARIABLE, "")))
    # The runtime's own handler would log each line again.
    own.propagate = False


def log_request_id(request_id: str | None) -> None:
    """Name the request in each line that is logged from now on."""
    _request_id.set(request_id)


def _add_request_id(record: logging.LogRecord) -> bool:
    if request_id := _request_id.get():
        fields = {"request_id": request_id, **getattr(record, FIELDS, {})}
        setattr(record, FIELDS, fields)
    return True


def _level(name: str) -> int:
    level = _LEVELS.get(name.upper()) or logging.getLevelName(name.upper())
    return level if isinstance(level, int) else logging.INFO
