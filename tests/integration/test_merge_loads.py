"""How often a merge loads its tables from the catalog: each load is a request, and may be large."""

from __future__ import annotations

from dataclasses import replace
from urllib.parse import urlsplit

import pytest

import neve
from neve.index import remote_shards
from neve.lake.java_tables import JavaTable
from neve.merge import locators
from neve.merge.plan import LoadedTables
from neve.merge.strategy import Strategy
from tests.support.lakes import rest_settings
from tests.support.merging import Mirrored, event
from tests.support.proxy import running_proxy

pytestmark = pytest.mark.usefixtures("embedded_lake")

# Each table is loaded once: who decides by it also reads it, or commits to it. Java loads the
# changelog once more for batches that are not small.
CHANGELOG, MIRROR, SIDE = 1, 1, 1
CHANGELOG_READS = 4
# Rows; tombstones, their manifest and its list; vectors, four manifests and their list; the index's
# delta and root. The server of the catalog writes metadata by itself.
WRITES = 12


@pytest.fixture(scope="module")
def counted_lake(rest_catalog, s3, commit_faults, store_requests):
    """A lake on the REST catalog and S3, both of which are asked through a proxy."""
    with (
        running_proxy(rest_catalog.port, [commit_faults]) as catalog,
        running_proxy(urlsplit(s3.endpoint).port, [store_requests]) as store,
        neve.open(rest_settings(catalog.uri, replace(s3, endpoint=store.uri))) as lake,
    ):
        yield lake


@pytest.fixture(scope="module")
def mirrored(embedded_lake, counted_lake):
    mirrored = Mirrored(counted_lake, strategy=Strategy.INDEX)
    # So many that the index is not merged after each batch.
    mirrored.append(*(event("I", 1, number, "first") for number in range(1000)))
    mirrored.merge()
    return mirrored


class StoreRequests:
    """Collects what is asked of a store: method and path."""

    def __init__(self):
        self.made = []

    def __call__(self, request, forward):
        self.made.append((request.method, request.path))
        return forward(request)


@pytest.fixture(scope="module")
def store_requests():
    return StoreRequests()


@pytest.fixture(scope="module")
def merger(mirrored):
    """A merger of which the first batch is merged, as that of a service is."""
    merger = mirrored.merger()
    mirrored.append(event("U", 2, 1, "second"), event("D", 2, 2), event("?", 2, 3, "what"))
    assert merger.merge().strategy == "index"
    return merger


def test_a_merge_loads_no_table_more_often_than_it_has_to(mirrored, merger, faults):
    mirrored.append(event("U", 3, 4, "third"), event("D", 3, 5))
    faults.expect(mirrored.namespace)
    report = merger.merge()
    assert (report.strategy, report.batches) == ("index", 1)
    assert faults.loads == {"changes": CHANGELOG, "rows": MIRROR, "rows_tombstones": SIDE}
    mirrored.check()


def test_a_merge_asks_the_store_for_nothing_that_it_has_written(mirrored, merger, store_requests):
    mirrored.append(event("U", 4, 4, "fourth"), event("D", 4, 6))
    store_requests.made.clear()
    assert merger.merge().strategy == "index"
    reads = [path for method, path in store_requests.made if method in ("GET", "HEAD")]
    writes = [path for method, path in store_requests.made if method == "PUT"]
    # Of the mirror, its tombstones and its index, everything is known from the merge before.
    assert {path for path in reads if "/changes/" not in path} == set()
    # Of the changelog: the list of manifests and its size, a manifest, a data file.
    assert len(reads) <= CHANGELOG_READS, reads
    assert len(writes) == len(set(writes))
    assert len(writes) <= WRITES, writes
    assert len(store_requests.made) == len(reads) + len(writes)
    mirrored.check()


def test_a_turn_with_nothing_to_do_loads_what_it_compares(mirrored, merger, faults):
    faults.expect(mirrored.namespace)
    assert merger.merge().outcome == "idle"
    assert faults.loads == {"changes": 1, "rows": 1}


def test_what_is_rejected_is_loaded_when_it_is_needed(mirrored, merger, faults):
    mirrored.append(event("?", 4, 6, "what"))
    faults.expect(mirrored.namespace)
    assert merger.merge().set_aside == 1
    assert faults.loads["rows_rejected"] == SIDE
    mirrored.check()


def test_a_backlog_is_looked_at_once(mirrored, merger, faults, monkeypatch):
    """The changelog is planned once, whatever the number of batches; only the mirror is new."""
    monkeypatch.setattr(merger, "spec", replace(mirrored.spec, batch_size=2))
    mirrored.append(*(event("U", 5, number, "fifth") for number in range(10)))
    faults.expect(mirrored.namespace)
    plan_files, planned = JavaTable.plan_files, []
    monkeypatch.setattr(
        JavaTable, "plan_files", lambda *of: planned.append(of[1:]) or plan_files(*of)
    )
    assert merger.merge().batches == 5
    assert len(planned) == 1
    # Slices of a snapshot are read by Java, which loads it for itself.
    assert faults.loads["changes"] == CHANGELOG + 1
    mirrored.check()


def test_a_batch_needs_a_job_where_much_of_the_index_is_not_on_this_machine(
    mirrored, merger, monkeypatch, tmp_path, caplog
):
    """Its tasks share the requests, and leave what they have read on the disk for the next one."""
    monkeypatch.setattr(locators, "MOST_REQUESTS_HERE", 0)
    # Of an index as small as this one, there is nothing but its directories to read.
    monkeypatch.setattr(remote_shards, "_SMALL_SHARD_BYTES", 0)
    settings = mirrored.lake.settings
    empty = settings.merge.model_copy(update={"index_cache_directory": str(tmp_path / "cache")})
    monkeypatch.setattr(mirrored.lake, "settings", settings.model_copy(update={"merge": empty}))
    caplog.set_level("DEBUG", logger="neve.merge.batch")
    reasons = []
    for lsn in (6, 7):
        mirrored.append(*(event("U", lsn, number, f"{lsn}") for number in range(600)))
        caplog.clear()
        report = mirrored.merger(loaded=LoadedTables()).merge()
        assert (report.strategy, report.rows_upserted) == ("index", 600)
        reasons.append([record.getMessage() for record in caplog.records])
        mirrored.check()
    (first, second) = reasons
    assert "parts of the index are not on this machine" in first[0]
    assert second == []
