"""A lake in a directory with odd letters in its name: each store, each engine, each reader."""

from __future__ import annotations

import time
import uuid
from collections import Counter

import pytest

import neve
from neve.errors import UnsupportedError
from neve.lake.file_store import FileStore
from neve.lake.table_ref import TableRef
from neve.upkeep.orphans import OrphanSearch
from tests.support.appending import Appender
from tests.support.lakes import rest_settings, sqlite_settings
from tests.support.merging import Mirrored, event
from tests.support.moved_tables import agreed, read_by_all, with_catalogs
from tests.support.readers import read_with_all

# What each engine takes for letters of a name, in one path.
ODD = "My Projects/Übung U\u0308 50%/a%20b+c~d/😀/e=f&g,h;i:j@k'l (m) [n] {o} * $p!^`|<q>"


@pytest.fixture(params=["local disk", pytest.param("S3", marks=pytest.mark.soak)])
def settings(request, tmp_path):
    """Two embedded lakes in such places; tables of the first are moved to the second, `there`."""
    further = {}
    for name in ("here", "there"):
        directory = tmp_path / name / ODD
        directory.mkdir(parents=True)
        further[name] = sqlite_settings(directory)
        if request.param == "S3":
            s3 = request.getfixturevalue("s3")
            warehouse = f"s3://{s3.bucket}/{tmp_path.name}/{name}/{ODD}"
            catalog = sqlite_settings(directory, warehouse=warehouse).catalog
            on_s3 = rest_settings("http://unused", s3)
            further[name] = on_s3.model_copy(update={"catalog": catalog})
    return with_catalogs(further["here"], tmp_path / "jour nals", there=further["there"])


def test_every_engine_and_every_reader_finds_the_same_files(embedded_lake, settings, tmp_path):
    with neve.open(settings) as lake:
        lake.catalog("there")
        mirrored = Mirrored(lake)
        mirrored.append(event("I", 1, 1, "a"), event("I", 2, 2, "b"))
        mirrored.merge()
        mirrored.append(event("U", 3, 1, "c"), event("D", 4, 2), event("I", 5, 3, "d"))
        mirrored.merge()
        mirrored.check()
        first, *others = read_with_all(lake, mirrored.mirror).values()
        assert [row["name"] for row in first] == ["c", "d"]
        assert others == [first, first]

        lake.sql("CREATE NAMESPACE shop")
        lake.sql("CREATE TABLE shop.orders (id BIGINT, day STRING) PARTITIONED BY (day)")
        lake.sql("INSERT INTO shop.orders VALUES (1, 'x y%2F'), (2, '#?')")
        _find_what_is_left(lake)
        _recover_what_is_lost(lake)
        (report,) = lake.move(mirrored.mirror, to="there")
        assert report.outcome == "registered"
        moved = TableRef("there", tuple(mirrored.mirror.split(".")))
        *_, newest = agreed(read_by_all(lake, moved)).values()
        assert [row[1] for row in newest] == ["c", "d"]
    assert {each.name for each in tmp_path.iterdir()} == {"here", "there", "jour nals"}
    for name in ("here", "there"):
        assert [each.name for each in (tmp_path / name).iterdir()] == ["My Projects"]


def _find_what_is_left(lake):
    location = lake.table("shop.orders").location
    # PyIceberg deletes in object stores, and takes a path there for a URL.
    name = "left behind #1.parquet" if location.startswith("file:") else "left%20behind ü.parquet"
    with FileStore(lake.profile) as store:
        left = f"{location}/data/{name}"
        store.write_new(left, b"left")
        search = OrphanSearch(lake, lake.ref("shop.orders"))
        plan = search.plan(time.time() + 60)
        assert [each.path.rpartition("/")[2] for each in plan.orphans] == [name]
        search.remove(plan)
        assert store.size(left) is None


def _recover_what_is_lost(lake):
    appender = Appender(lake)
    appender.append(7)
    lake.catalog().drop_table(("ns", "t"))
    assert lake.unregistered_tables() == ["ns.t"]
    assert lake.recover_table("ns.t").outcome == "registered"
    assert appender.ids() == Counter([7])


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE TABLE {ns}.`a#b` (id BIGINT)",
        "create or replace table {ns}.t using iceberg location '{place}/a?b' as select 1 as id",
        "CREATE TABLE {ns}.t (id BIGINT) TBLPROPERTIES ('write.data.path' = '{place}/a#b')",
        "CREATE NAMESPACE {ns}_other LOCATION '{place}/a\"b'",
    ],
)
def test_spark_is_not_let_make_what_it_would_put_elsewhere(embedded_lake, tmp_path, statement):
    """Its S3FileIO writes each file of a table at `s3://b/a#b` to the one object `a`."""
    namespace = f"odd_{uuid.uuid4().hex[:12]}"
    embedded_lake.sql(f"CREATE NAMESPACE {namespace}")
    with pytest.raises(UnsupportedError, match="not every engine takes for a letter"):
        embedded_lake.sql(statement.format(ns=namespace, place=f"file://{tmp_path}"))
    assert embedded_lake.catalog().list_tables(namespace) == []
    made = "CREATE TABLE {ns}.t AS SELECT '#?' AS id, replace('a?', '?', '#') AS other"
    embedded_lake.sql(made.format(ns=namespace))
