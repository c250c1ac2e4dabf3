"""Tables are made once, and grow once, whoever else makes them at the same time."""

import pyarrow as pa
import pytest

import neve
from neve.errors import NeveError, NotFoundError
from neve.lake.create import TableSpec, ensure_table
from tests.support.lakes import sqlite_settings
from tests.support.racing import check_racing, race_to_ensure

NARROW = TableSpec(("otel", "logs"), pa.schema([pa.field("body", pa.string())]))
WIDE = TableSpec(
    NARROW.identifier,
    NARROW.schema.append(pa.field("code", pa.int64())).append(pa.field("host", pa.string())),
)


def test_two_make_a_namespace_and_a_table_and_widen_it_at_the_same_time(tmp_path):
    settings = sqlite_settings(tmp_path)
    with neve.open(settings) as lake:
        lake.catalog()
    check_racing(settings, NARROW, WIDE, ["namespace_exists", "create_table"])


def test_two_make_the_embedded_catalog_at_the_same_time(tmp_path):
    for number in range(10):
        settings = sqlite_settings(tmp_path / str(number))
        (left, right), _ = race_to_ensure(settings, NARROW, [])
        assert left.metadata.table_uuid == right.metadata.table_uuid


def test_a_table_dropped_meanwhile_is_an_error_that_names_it(tmp_path, monkeypatch):
    with neve.open(sqlite_settings(tmp_path)) as lake:
        catalog = lake.catalog()
        ensure_table(lake.profile, catalog, NARROW)
        commit = catalog.commit_table

        def drop_first(*args):
            catalog.drop_table(NARROW.identifier)
            return commit(*args)

        monkeypatch.setattr(catalog, "commit_table", drop_first)
        with pytest.raises(NotFoundError, match=r"otel\.logs does not exist"):
            ensure_table(lake.profile, catalog, WIDE)


def test_a_namespace_that_cannot_be_made_is_our_error(tmp_path, monkeypatch):
    with neve.open(sqlite_settings(tmp_path)) as lake:
        catalog = lake.catalog()
        monkeypatch.setattr(catalog, "create_namespace", lambda _: None)
        with pytest.raises(NeveError, match="otel"):
            ensure_table(lake.profile, catalog, NARROW)
