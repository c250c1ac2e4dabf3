"""PostgreSQL connections that end when the server does not answer.

libpq bounds only the making of a connection. A server that is stopped, or a proxy that hangs, keeps
the connection open and acknowledges every packet: neither keep-alives nor a `statement_timeout`,
which is the server's own, end the wait for it.
"""

from __future__ import annotations

import math
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import psycopg2
import psycopg2.extensions
from sqlalchemy import event

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from neve.lake.timeouts import Timeouts


def bound_answers(engine: Engine, bounds: Timeouts) -> None:
    """Give every connection that an engine makes from now on these time-outs."""

    class Connection(BoundedConnection):
        timeouts = bounds

    def connect(_dialect: Any, _record: Any, _arguments: Any, parameters: dict[str, Any]) -> None:
        parameters.setdefault("connect_timeout", math.ceil(bounds.now().connect_seconds))
        # For a network that is gone: the kernel gives up on what was not acknowledged.
        parameters.setdefault("tcp_user_timeout", math.ceil(bounds.answer_seconds * 1000))
        parameters["connection_factory"] = Connection
        parameters["cursor_factory"] = BoundedCursor

    event.listen(engine, "do_connect", connect)


class BoundedConnection(psycopg2.extensions.connection):
    """A connection whose every exchange ends in time: with an answer, or by hanging up."""

    timeouts: Timeouts

    @contextmanager
    def bounded(self) -> Iterator[None]:
        """Hang up if the block takes too long; libpq then raises, and so does this.

        Raises:
            psycopg2.OperationalError: there was no answer in time.
        """
        seconds = self.timeouts.now().answer_seconds
        watch = _Watch(self.fileno(), seconds)
        try:
            with watch:
                yield
        except psycopg2.Error as error:
            if not watch.hung_up:
                raise
            raise psycopg2.OperationalError(f"no answer within {seconds:g} s") from error

    def commit(self) -> None:
        with self.bounded():
            super().commit()

    def rollback(self) -> None:
        with self.bounded():
            super().rollback()


class BoundedCursor(psycopg2.extensions.cursor):
    """A cursor of a `BoundedConnection`."""

    connection: BoundedConnection

    def execute(self, *arguments: Any, **named: Any) -> None:
        with self.connection.bounded():
            super().execute(*arguments, **named)

    def executemany(self, *arguments: Any, **named: Any) -> None:
        with self.connection.bounded():
            super().executemany(*arguments, **named)


class _Watch:
    """Shuts a socket down unless the block ends first."""

    def __init__(self, descriptor: int, seconds: float) -> None:
        self.hung_up = False
        self._descriptor = descriptor
        self._ended = False
        # The descriptor may be another's as soon as the block has ended.
        self._lock = threading.Lock()
        self._timer = threading.Timer(seconds, self._hang_up)
        self._timer.daemon = True

    def __enter__(self) -> None:
        self._timer.start()

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()
        with self._lock:
            self._ended = True

    def _hang_up(self) -> None:
        with self._lock, suppress(OSError):
            if self._ended:
                return
            self.hung_up = True
            with socket.socket(fileno=socket.dup(self._descriptor)) as connection:
                connection.shutdown(socket.SHUT_RDWR)
