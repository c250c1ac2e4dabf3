"""Debezium on a real PostgreSQL: what its engine sends, event by event."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg2

from neve.lake.java import find_java
from tests.support.install import DEBEZIUM, classpath
from tests.support.process import Process
from tests.support.servers import SHORT_LIVED_JAVA, Database
from tests.support.wait import until

UNAVAILABLE_VALUE = "__debezium_unavailable_value"
_DEADLINE_SECONDS = 30


@dataclass(frozen=True)
class ChangeEvent:
    """One event as it was sent. A tombstone has no value, a truncate no key."""

    topic: str
    key: dict[str, Any] | None
    value: dict[str, Any] | None
    offset: dict[str, Any]

    @property
    def op(self) -> str | None:
        return self.value["op"] if self.value else None

    @property
    def is_tombstone(self) -> bool:
        return self.value is None


class Debezium:
    """A running engine and the events it has sent so far."""

    def __init__(self, process: Process, output: Path, database: Database) -> None:
        self.process = process
        self._database = database
        self._lines = output.open("rb")
        self._half_line = b""
        self._events: list[ChangeEvent] = []

    def events(self) -> list[ChangeEvent]:
        """Return every change of a row or table seen so far, in the order it was sent."""
        self._read()
        return [event for event in self._events if event.op != "m"]

    def events_until(self, condition: Callable[[list[ChangeEvent]], object]) -> list[ChangeEvent]:
        """Return the events once the condition holds for them."""
        self.process.wait_until(lambda: bool(condition(self.events())), _DEADLINE_SECONDS)
        return self.events()

    def events_until_now(self) -> list[ChangeEvent]:
        """Return the events of all that was committed before this call.

        A message is written to the log behind it; the engine sends that one on as well.
        """
        prefix = f"until-{uuid.uuid4().hex}"
        with closing(connect(self._database)) as connection, connection.cursor() as cursor:
            cursor.execute("SELECT pg_logical_emit_message(true, %s, '')", [prefix])
        self.process.wait_until(lambda: self._has_message(prefix), _DEADLINE_SECONDS)
        return self.events()

    def close(self) -> None:
        self.process.stop()
        self._lines.close()

    def _has_message(self, prefix: str) -> bool:
        self._read()
        return any(
            event.op == "m" and event.value["message"]["prefix"] == prefix for event in self._events
        )

    def _read(self) -> None:
        *lines, self._half_line = (self._half_line + self._lines.read()).split(b"\n")
        self._events += [ChangeEvent(**json.loads(line)) for line in lines]


def connect(database: Database) -> Any:
    """Connect so that every statement is a transaction of its own, unless it begins one."""
    connection = psycopg2.connect(database.uri())
    connection.autocommit = True
    return connection


@contextmanager
def running_debezium(
    directory: Path, database: Database, tables: Sequence[str], **options: str
) -> Iterator[Debezium]:
    """Capture tables, given as `schema.table`: what they hold, then every change to them.

    All that is committed after entry is captured as a change. On exit the slot and the publication
    are gone from the database.

    Args:
        options: further properties of the connector, with `_` for `.`.
    """
    name = f"neve_{uuid.uuid4().hex[:12]}"
    output = directory / f"{name}.jsonl"
    properties = {**_properties(directory, database, name), "table.include.list": ",".join(tables)}
    properties.update({key.replace("_", "."): value for key, value in options.items()})
    with closing(connect(database)) as connection, connection.cursor() as cursor:
        process = Process(
            "debezium",
            [find_java(), "-Xmx256m", "-cp", classpath(DEBEZIUM), "neve.tests.Changes"]
            + [f"{key}={value}" for key, value in properties.items()],
            directory / f"{name}.log",
            environment=SHORT_LIVED_JAVA,
            output=output,
        )
        engine = Debezium(process, output, database)
        try:
            process.wait_until(lambda: _is_consistent(cursor, name))
            yield engine
        finally:
            engine.close()
            _remove(cursor, name)


def _properties(directory: Path, database: Database, name: str) -> dict[str, str]:
    return {
        "name": name,
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
        "offset.storage": "org.apache.kafka.connect.storage.FileOffsetBackingStore",
        "offset.storage.file.filename": str(directory / f"{name}.offsets"),
        "offset.flush.interval.ms": "0",
        "key.converter.schemas.enable": "false",
        "value.converter.schemas.enable": "false",
        "topic.prefix": name,
        "database.hostname": "127.0.0.1",
        "database.port": str(database.port),
        "database.user": database.user,
        "database.password": database.password,
        "database.dbname": "postgres",
        "plugin.name": "pgoutput",
        "slot.name": name,
        "publication.name": name,
        "publication.autocreate.mode": "filtered",
        "snapshot.mode": "initial",
        "skipped.operations": "none",  # the default leaves truncates out
        "decimal.handling.mode": "string",  # the default is base64 of the unscaled number
        "time.precision.mode": "isostring",  # the default counts days, milli- or microseconds
        "poll.interval.ms": "20",
    }


def _is_consistent(cursor: Any, slot: str) -> bool:
    """Tell if the slot exists and has its snapshot: every commit from here on is sent."""
    cursor.execute(
        "SELECT 1 FROM pg_replication_slots "
        "WHERE slot_name = %s AND confirmed_flush_lsn IS NOT NULL",
        [slot],
    )
    return cursor.fetchone() is not None


def _remove(cursor: Any, name: str) -> None:
    """Drop what the engine made, once PostgreSQL has noticed that it is gone."""

    def is_gone() -> bool:
        cursor.execute(
            "SELECT 1 FROM pg_stat_activity WHERE application_name LIKE 'Debezium%%' "
            "UNION ALL SELECT 1 FROM pg_replication_slots WHERE slot_name = %s AND active",
            [name],
        )
        return cursor.fetchone() is None

    until(is_gone)
    cursor.execute(
        "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = %s",
        [name],
    )
    cursor.execute(f"DROP PUBLICATION IF EXISTS {name}")
