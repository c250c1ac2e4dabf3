"""In how many tasks keys are looked up, and when tasks are worth a job."""

from __future__ import annotations

from types import SimpleNamespace

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField
from pyspark.sql.types import LongType as SparkLong
from pyspark.sql.types import StructField, StructType

from neve.index.hashing import KeyHasher
from neve.lake.plain_types import NeedsSparkError
from neve.merge import key_lookup, locators
from neve.merge.locators import EVENTS_A_TASK, FEW_EVENTS, MOST_REQUESTS_HERE, index_locator
from neve.merge.shape import Shape

CORES = 8
FIELDS = ("id", "lsn")
SCHEMA = Schema(*(NestedField(at, name, LongType()) for at, name in enumerate(FIELDS, 1)))
COLUMNS = StructType([StructField(name, SparkLong()) for name in FIELDS])
SHAPE = Shape(("id",), ("lsn",), COLUMNS)
NEWEST = pa.table({"id": [1, 2], "lsn": [1, 2]})


@pytest.fixture
def locate():
    """Make a locator for so many events, of an index in a bucket or on the disk."""

    def make(events, place="s3://bucket/index", cores=CORES):
        session = SimpleNamespace(sparkContext=SimpleNamespace(defaultParallelism=cores))
        root = SimpleNamespace(
            shards=[SimpleNamespace(path=f"{place}/shard.puffin")],
            hasher=KeyHasher(0, (False,)),
            to_json=lambda: "{}",
        )
        table = SimpleNamespace(io=SimpleNamespace(properties={}), schema=lambda: SCHEMA)
        index = SimpleNamespace(root=root, mirror=SimpleNamespace(table=table))
        return index_locator(session, index, events)

    return make


@pytest.mark.parametrize(
    ("events", "tasks"),
    [
        (1, 1),
        (500, 1),
        (501, 2),
        (4_000, CORES),
        (20_000, CORES),
        (EVENTS_A_TASK * CORES, CORES),
        # A task's memory is bounded, too.
        (EVENTS_A_TASK * CORES + 1, CORES + 1),
        (None, CORES),
    ],
)
def test_an_index_in_a_store_is_read_by_all_cores(locate, events, tasks):
    """It was read in one task up to 20,000 events, whatever the cluster."""
    locator = locate(events)
    assert locator.partitions == tasks
    # Keys of a block go to one task, where there are enough that blocks have several.
    assert locator.by_hash == (events is None or events > FEW_EVENTS)


@pytest.mark.parametrize(("events", "tasks"), [(20_000, 1), (20_001, 2), (160_000, CORES)])
def test_an_index_on_the_disk_needs_fewer_tasks(locate, events, tasks):
    locator = locate(events, "/lake/index")
    assert (locator.partitions, locator.by_hash) == (tasks, False)


@pytest.mark.parametrize(("requests", "is_here"), [(0, True), (2_000, True), (2_001, False)])
def test_what_takes_many_requests_is_left_to_tasks(locate, monkeypatch, requests, is_here):
    assert MOST_REQUESTS_HERE == 2_000
    counted = []
    monkeypatch.setattr(
        locators.KeyLookup, "requests", lambda _, rows: counted.append(rows) or requests
    )
    if is_here:
        assert locate(100_000).decided_here(NEWEST, SHAPE, None).newest is NEWEST
    else:
        with pytest.raises(NeedsSparkError, match="2001 parts of the index"):
            locate(100_000).decided_here(NEWEST, SHAPE, None)
    assert counted == [NEWEST]


@pytest.mark.parametrize("where", [{"cores": 1}, {"place": "/lake/index"}])
def test_where_tasks_cannot_help_nothing_is_counted(locate, monkeypatch, where):
    counted = []
    monkeypatch.setattr(locators.KeyLookup, "requests", lambda *_: counted.append(1))
    assert locate(100_000, **where).decided_here(NEWEST, SHAPE, None).newest is NEWEST
    assert counted == []


def test_a_broken_index_is_left_to_the_search_to_tell(locate, monkeypatch):
    def broken(*_):
        raise key_lookup.CorruptionError("index file is missing")

    monkeypatch.setattr(key_lookup.Root, "from_json", lambda _: None)
    monkeypatch.setattr(key_lookup, "IndexReader", lambda *_: SimpleNamespace(requests=broken))
    assert locate(100_000).decided_here(NEWEST, SHAPE, None).newest is NEWEST
