"""What is logged, and how: a line for each event, as text for people, or as observe/json_log.py.

A service speaks in permanent lines with the time in front. `say` is for its own events, which are
printed whatever the verbosity; warnings of the rooms below come through the same handler.
"""

from __future__ import annotations

import logging
import sys
from copy import copy
from typing import Any

from neve.observe.json_log import EVENT, FIELDS, Mask, time_of

logger = logging.getLogger(__name__)

# Their INFO is what an operator waits for: what began, and what is well again.
SPOKEN = ("neve.service", "neve.lake.session.started", "neve.buffer.writer")
STOPPING = "stopping; Ctrl-C again ends at once"


def say(event: str, message: str, *, level: int = logging.INFO, **fields: Any) -> None:
    """Print a line about the service.

    Args:
        event: a word that stays the same when the message is reworded.
        fields: the numbers and names in the message, for machines.
    """
    logger.log(level, "%s", message, extra={EVENT: event, FIELDS: fields})


def say_stopping() -> None:
    """Say that the first signal was heard; not in a signal's handler, which may not print."""
    if sys.stderr.isatty():
        # The terminal has printed ^C at the beginning of the line.
        sys.stderr.write("\n")
    say("stopping", STOPPING)


class PlainFormatter(logging.Formatter):
    """For commands that end.

    Args:
        tracebacks: whether to show where an error came from.
    """

    def __init__(self, mask: Mask, *, tracebacks: bool = True) -> None:
        super().__init__("%(levelname)s %(name)s: %(message)s")
        self._mask = mask
        self._tracebacks = tracebacks

    def format(self, record: logging.LogRecord) -> str:
        if not self._tracebacks:
            record = copy(record)
            record.exc_info = record.exc_text = None
        return self._mask(super().format(record))


class ServiceFormatter(PlainFormatter):
    """For people who watch a service: the time, and from WARNING on the level."""

    def formatTime(  # noqa: N802 - as the base class
        self,
        record: logging.LogRecord,
        datefmt: str | None = None,  # noqa: ARG002 - as the base class
    ) -> str:
        return time_of(record).strftime("%Y-%m-%dT%H:%M:%SZ")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - as the base class
        level = f"{record.levelname} " if record.levelno >= logging.WARNING else ""
        return f"{self.formatTime(record)} {level}{record.message}"


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
