"""What is logged, and how: a line for each event, as text for people or as JSON for machines.

A service speaks in permanent lines with the time in front. `say` is for its own events, which are
printed whatever the verbosity; warnings of the rooms below come through the same handler.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable
from datetime import datetime, timezone
from typing import Any

logger = logging.getLogger(__name__)

Mask = Callable[[str], str]

# Their INFO is what an operator waits for: what began, and what is well again.
SPOKEN = ("neve.service", "neve.lake.session.started", "neve.buffer.writer")
STOPPING = "stopping; Ctrl-C again ends at once"
# Of a record's own attributes, none is called so.
_EVENT, _FIELDS = "neve_event", "neve_fields"


def say(event: str, message: str, *, level: int = logging.INFO, **fields: Any) -> None:
    """Print a line about the service.

    Args:
        event: a word that stays the same when the message is reworded.
        fields: the numbers and names in the message, for machines.
    """
    logger.log(level, "%s", message, extra={_EVENT: event, _FIELDS: fields})


def say_stopping() -> None:
    """Say that the first signal was heard; not in a signal's handler, which may not print."""
    if sys.stderr.isatty():
        # The terminal has printed ^C at the beginning of the line.
        sys.stderr.write("\n")
    say("stopping", STOPPING)


class PlainFormatter(logging.Formatter):
    """For commands that end."""

    def __init__(self, mask: Mask) -> None:
        super().__init__("%(levelname)s %(name)s: %(message)s")
        self._mask = mask

    def format(self, record: logging.LogRecord) -> str:
        return self._mask(super().format(record))


class ServiceFormatter(PlainFormatter):
    """For people who watch a service: the time, and from WARNING on the level."""

    def formatTime(  # noqa: N802 - as the base class
        self,
        record: logging.LogRecord,
        datefmt: str | None = None,  # noqa: ARG002 - as the base class
    ) -> str:
        return _time(record).strftime("%Y-%m-%dT%H:%M:%SZ")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - as the base class
        level = f"{record.levelname} " if record.levelno >= logging.WARNING else ""
        return f"{self.formatTime(record)} {level}{record.message}"


class JsonFormatter(logging.Formatter):
    """For machines: an object on a line. Masked before it is encoded, which may change a secret."""

    def __init__(self, mask: Mask) -> None:
        super().__init__()
        self._mask = mask

    def format(self, record: logging.LogRecord) -> str:
        document = {
            "time": _time(record).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": getattr(record, _EVENT, None) or "log",
            "message": self._mask(record.getMessage()),
        }
        for name, value in getattr(record, _FIELDS, {}).items():
            document[name] = self._mask(value) if isinstance(value, str) else value
        if record.exc_info:
            document["exception"] = self._mask(self.formatException(record.exc_info))
        return json.dumps(document, ensure_ascii=False, default=str)


def _time(record: logging.LogRecord) -> datetime:
    return datetime.fromtimestamp(record.created, timezone.utc)


def configure(verbosity: int, formatter: logging.Formatter) -> None:
    """Log Neve's own words; the libraries' (py4j logs stacks of its own) only from -vv on."""
    level = {0: logging.WARNING, 1: logging.INFO}.get(verbosity, logging.DEBUG)
    handler = logging.StreamHandler()
    handler.setFormatter(formatter)
    root, own = logging.getLogger(), logging.getLogger("neve")
    root.handlers = [handler if verbosity > 1 else logging.NullHandler()]
    own.handlers = [] if verbosity > 1 else [handler]
    own.setLevel(level)


def speak() -> None:
    """Have what `SPOKEN` names printed at every verbosity."""
    for name in SPOKEN:
        logging.getLogger(name).setLevel(min(logging.INFO, logging.getLogger("neve").level))
