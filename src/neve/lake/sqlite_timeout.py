"""SQLite connections that wait for a lock no longer than their caller has time, and let go."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import event

from neve.lake.profile import SQLITE_WAIT_SECONDS
from neve.lake.timeouts import seconds_left

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine


def bound_locks(engine: Engine) -> None:
    """Cut the wait for locks of all connections of an engine to the time that is left.

    What was not committed in that time is rolled back.
    """
    most = float(str(engine.url.query.get("timeout", SQLITE_WAIT_SECONDS)))

    def set_wait(connection: Any) -> None:
        connection.execute(f"PRAGMA busy_timeout = {int(seconds_left(most) * 1000)}")

    def begin(connection: Any, _record: Any, _proxy: Any) -> None:
        set_wait(connection)

    def commit(connection: Connection) -> None:
        set_wait(connection.connection.dbapi_connection)

    def end(connection: Any, _record: Any, _state: Any) -> None:
        # After a COMMIT that found the database locked, SQLAlchemy takes the transaction for ended.
        # For SQLite it goes on: it would keep its locks, and the connection's next user commit it.
        if connection.in_transaction:
            connection.rollback()

    # A statement waits for writers, and its commit for readers.
    event.listen(engine, "checkout", begin)
    event.listen(engine, "commit", commit)
    event.listen(engine, "reset", end)
