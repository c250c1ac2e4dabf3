"""A service merges for months: what a merge opens, it closes."""

from __future__ import annotations

from contextlib import closing

from tests.support.debezium import connect
from tests.support.merging import Mirrored, event


def connections(postgres):
    with closing(connect(postgres)) as connection, connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'"
        )
        return cursor.fetchone()[0]


def test_merges_leave_no_connections_to_the_catalog_behind(postgres_lake, postgres):
    mirrored = Mirrored(postgres_lake)
    counts = []
    for number in range(3):
        mirrored.append(event("I", number, number, "row"), event("D", number, 100 + number))
        mirrored.merge()
        counts.append(connections(postgres))
    mirrored.check()
    assert counts[1:] == counts[:-1], counts
