"""Log lines for machines: an object on a line."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from datetime import datetime, timezone

Mask = Callable[[str], str]

# Attributes of a record; none of its own is called so.
EVENT, FIELDS = "neve_event", "neve_fields"


class JsonFormatter(logging.Formatter):
    """For machines: an object on a line. Masked before it is encoded, which may change a secret."""

    def __init__(self, mask: Mask) -> None:
        super().__init__()
        self._mask = mask

    def format(self, record: logging.LogRecord) -> str:
        document = {
            "time": time_of(record).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": getattr(record, EVENT, None) or "log",
            "message": self._mask(record.getMessage()),
        }
        for name, value in getattr(record, FIELDS, {}).items():
            document[name] = self._mask(value) if isinstance(value, str) else value
        if record.exc_info:
            document["exception"] = self._mask(self.formatException(record.exc_info))
        return json.dumps(document, ensure_ascii=False, default=str)


def time_of(record: logging.LogRecord) -> datetime:
    """Return when a line was logged."""
    return datetime.fromtimestamp(record.created, timezone.utc)
