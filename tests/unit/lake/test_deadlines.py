"""Waits for catalogs and stores end with the time that their caller has."""

import sqlite3
import time

import pytest
from sqlalchemy.exc import DBAPIError

import neve
from neve.errors import StorageError
from neve.lake.profile import DEFAULT_CATALOG, profile_named
from neve.lake.store_faults import repeated
from neve.lake.timeouts import Timeouts, bounded_by, is_time_over, seconds_left
from tests.support.lakes import sqlite_settings

# Beyond what a test waits for on a machine that has other things to do, and below SQLite's 30 s.
SOON_SECONDS = 15


def test_the_earlier_of_two_bounds_counts():
    assert (seconds_left(60), is_time_over()) == (60, False)
    with bounded_by(lambda: 5.0):
        with bounded_by(lambda: 7.0):
            assert seconds_left(60) == 5
        with bounded_by(lambda: 3.0):
            assert Timeouts(1, 60).now() == Timeouts(1, 3)
            assert not is_time_over()
        with bounded_by(lambda: -1.0):
            assert 0 < seconds_left(60) < 1
            assert is_time_over()
        assert seconds_left(60) == 5


def test_a_lock_of_sqlite_is_waited_for_no_longer_than_there_is_time(tmp_path):
    with neve.open(sqlite_settings(tmp_path)) as lake:
        lake.catalog().create_namespace("a")
        connection = sqlite3.connect(tmp_path / "catalog.db", isolation_level=None)
        connection.execute("BEGIN EXCLUSIVE")
        started = time.monotonic()
        end = started + 1.0
        with (
            bounded_by(lambda: end - time.monotonic()),
            pytest.raises(DBAPIError, match="locked"),
        ):
            lake.catalog().load_table("a.b")
        assert 0.9 < time.monotonic() - started < SOON_SECONDS
        connection.close()


def test_a_commit_that_readers_hold_up_ends_and_leaves_nothing_behind(tmp_path):
    """SQLAlchemy forgets the transaction; another commit of its connection would take it along."""
    with neve.open(sqlite_settings(tmp_path)) as lake:
        catalog = lake.catalog()
        reader = sqlite3.connect(tmp_path / "catalog.db", isolation_level=None)
        reader.execute("BEGIN")
        reader.execute("SELECT * FROM iceberg_tables").fetchall()
        started = time.monotonic()
        end = started + 1.0
        with bounded_by(lambda: end - time.monotonic()), pytest.raises(DBAPIError, match="locked"):
            catalog.create_namespace("a")
        assert time.monotonic() - started < SOON_SECONDS
        other = sqlite3.connect(tmp_path / "catalog.db", timeout=0)
        assert other.execute("SELECT * FROM iceberg_namespace_properties").fetchall() == []
        reader.close()
        catalog.create_namespace("b")
        assert catalog.list_namespaces() == [("b",)]
        other.close()


def test_a_request_to_a_store_is_not_repeated_when_the_time_is_over():
    attempts = []

    def attempt():
        attempts.append(1)
        raise OSError("silence")

    with bounded_by(lambda: 0.0), pytest.raises(StorageError):
        repeated(attempt, "cannot read", "s3://a/b")
    assert len(attempts) == 1


def test_a_store_may_be_silent_for_a_part_of_the_time_only(tmp_path):
    profile = profile_named(sqlite_settings(tmp_path), DEFAULT_CATALOG)
    assert profile.within(1000).storage == profile.storage
    properties = profile.within(8).pyiceberg_properties()
    assert (properties["s3.request-timeout"], properties["s3.connect-timeout"]) == ("2", "2")
