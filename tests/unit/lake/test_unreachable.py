"""Files that several entries or several commits name stay while one of them does."""

from __future__ import annotations

import random
from dataclasses import replace

from neve.lake.unreachable import unreachable_files
from tests.support.reachable import FileTable


def test_a_puffin_file_stays_while_another_manifest_has_one_of_its_vectors():
    """Deletion vectors of two partition specs: one file, two manifests, one of which goes."""
    table = FileTable(random.Random(0))
    puffin, newer = (f"{table.location}/data/{name}.puffin" for name in ("shared", "newer"))
    first = table.commit(None, [], [f"{table.location}/data/a.parquet"])
    both = table.lines[table.commit(first, table.lines[first], [puffin])]
    more = table.lines[table.commit(first, table.lines[first], [puffin])]
    vectors = [replace(lines[-1], content=1) for lines in (both, more)]
    table.remove(list(table.snapshots)[1:])
    deleted = table.commit(first, [*table.lines[first], *vectors], [])
    last = table.commit(deleted, [*table.lines[first], vectors[1]], [newer])
    table.refs["main"] = last
    before, had = table.metadata(), table.reached()
    table.remove([deleted])
    unreachable = unreachable_files(table.read, before, table.metadata(), [deleted])
    assert set(unreachable.paths) == had - table.reached()
    assert puffin not in unreachable.paths


def test_a_file_stays_that_a_cherry_pick_added_after_a_commit_that_does_not_tell_its_writer():
    """`add_files` of a file of a staged batch; the file is deleted, and then the batch published.

    The batch's own snapshot is gone, so that nothing says that both have added the same file.
    """
    table = FileTable(random.Random(0))
    file, other = (f"{table.location}/data/{name}.parquet" for name in "ab")
    added = table.commit(None, [], [file])
    deleted = table.commit(added, table.lines[added], [], [file], summary={"operation": "delete"})
    by_spark = {"operation": "append", "spark.app.id": "local-1"}
    between = table.commit(deleted, [], [other], summary=by_spark)
    summary = {"neve.batch-id": "1", "source-snapshot-id": "12345"}
    picked = table.commit(between, table.lines[between], [file], summary=summary)
    emptied = table.commit(picked, table.lines[picked], [], [file], summary={"operation": "delete"})
    table.refs["main"] = table.commit(emptied, table.lines[emptied], [], summary=by_spark)
    before, had = table.metadata(), table.reached()
    table.remove([added, deleted])
    unreachable = unreachable_files(table.read, before, table.metadata(), [added, deleted])
    assert file not in unreachable.paths
    assert set(unreachable.paths) == had - table.reached()
