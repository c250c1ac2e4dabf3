"""Files that several entries of a snapshot name stay while one of the entries does."""

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
