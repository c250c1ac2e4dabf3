"""Runs are merged before they are many, at little cost, and nothing changes by it."""

import json
import threading
import time
import tracemalloc
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from neve.index import compaction
from neve.index import root as index_root
from neve.index.cache import BucketCache
from neve.index.compaction import (
    MOST_DELTAS,
    Compaction,
    add_delta,
    compact_buckets,
    plan_compaction,
    with_compacted,
    write_entries,
)
from neve.index.entries import ABSENT, TOMBSTONE
from neve.index.files import list_files
from neve.index.maintain import unreferenced, unreferenced_files
from neve.index.root import Root, new_path, write_root
from neve.index.shard import ShardRef
from tests.support.indexed import compact


def run(rows, generation):
    return ShardRef(f"s{generation}", rows * 22, generation, 0, rows, 0, 0, 0)


@pytest.mark.parametrize(
    ("base", "delta"), [(10_000_000, 100_000), (40_000_000, 1_000), (40_000_000, 10_000), (0, 500)]
)
def test_200_merges_leave_few_runs_and_rewrite_little(workshop, base, delta):
    root = workshop.root.with_shards([run(base, 1)] if base else [])
    rewritten = 0
    for _ in range(200):
        root = root.with_shards([run(delta, root.next_generation)])
        while plan := plan_compaction(root):
            merged = sum(
                shard.rows for shard in root.shards if shard.generation in plan.generations
            )
            rewritten += merged
            root = with_compacted(root, plan, [run(merged, plan.generations[-1])])
        assert len(root.shards) <= 1 + MOST_DELTAS
    assert rewritten / (200 * delta) < 12
    assert root.rows == base + 200 * delta


def test_a_single_run_is_left_alone(workshop):
    assert plan_compaction(workshop.root) is None
    assert plan_compaction(workshop.root, force=True) is None
    assert plan_compaction(workshop.root.with_shards([run(5, 1)])) is None


def history(workshop, steps, seed=2):
    """Grow an index by random steps; return it with what it should know."""
    rng = np.random.default_rng(seed)
    root, truth = workshop.root, {}
    for step in range(steps):
        keys = rng.choice(3000, 400, replace=False).astype(np.uint64) << np.uint64(52)
        files = rng.choice([TOMBSTONE, ABSENT, 0, 1, 2, 3, 4], 400)
        entries = workshop.entries(keys, files, np.arange(400) + 1000 * step, np.full(400, step))
        root = add_delta(workshop.io, root, workshop.location, entries, step)
        for number, (key, file) in enumerate(zip(keys.tolist(), files.tolist(), strict=True)):
            truth[key] = (file, number + 1000 * step)
    return root, {key: value for key, value in truth.items() if value[0] != ABSENT}


def known(workshop, root):
    entries = workshop.reader(root).read_bucket(0, 0)
    names = [root.files[file] if file >= 0 else file for file in entries.file.tolist()]
    return {
        key: (name, position)
        for key, name, position in zip(
            entries.first.tolist(), names, entries.position.tolist(), strict=True
        )
    }


def named(workshop, truth, dead=()):
    return {
        key: (workshop.root.files[file] if file >= 0 else file, position)
        for key, (file, position) in truth.items()
        if file not in dead
    }


def test_nothing_changes_by_compaction(workshop_of_any_kind):
    workshop = workshop_of_any_kind
    root, truth = history(workshop, 6)
    assert known(workshop, root) == named(workshop, truth)
    plan = plan_compaction(root)
    assert plan is not None
    assert known(workshop, compact(workshop.io, root, plan, workshop.location)) == named(
        workshop, truth
    )


def test_a_full_compaction_drops_dead_files_and_what_only_hides(workshop_of_any_kind):
    workshop = workshop_of_any_kind
    root, truth = history(workshop, 5)
    root = root.without_files(["f1", "f3"])
    expected = named(workshop, truth, dead=(1, 3))
    assert known(workshop, root) == expected
    plan = plan_compaction(root, force=True)
    whole = compact(workshop.io, root, plan, workshop.location)
    assert (len(whole.shards), whole.removed_files) == (1, frozenset())
    assert whole.files == tuple(
        path for number, path in enumerate(root.files) if number not in (1, 3)
    )
    assert whole.rows == len(expected)
    assert known(workshop, whole) == expected


def test_a_partial_compaction_keeps_hiding_what_lies_underneath(workshop):
    keys = np.arange(100_000, dtype=np.uint64) << np.uint64(40)
    root = add_delta(
        workshop.io, workshop.root, workshop.location, workshop.entries(keys, 0, 1, keys), 1
    )
    for number in range(4):
        gone = workshop.entries(keys[number : number + 1], ABSENT, -1, [0])
        root = add_delta(workshop.io, root, workshop.location, gone, 2)
    plan = plan_compaction(root)
    assert (plan.generations, plan.is_full) == ((2, 3, 4, 5), False)
    merged = compact(workshop.io, root, plan, workshop.location)
    assert len(merged.shards) == 2
    assert workshop.search(merged, keys[:6]).has_entry.tolist() == [False] * 4 + [True] * 2


def test_a_root_names_few_files_however_many_merges_there_were(workshop, monkeypatch):
    """The same keys change for ever: each merge adds a file, and empties that of the last one."""
    monkeypatch.setattr(compaction, "MOST_REMOVED_FILES", 20)
    keys = np.arange(10_000, dtype=np.uint64) << np.uint64(48)
    root = add_delta(
        workshop.io, workshop.root, workshop.location, workshop.entries(keys, 0, 1, keys), 1
    )
    before, named_files, rewritten_bases = len(root.files), [], 0
    for number in range(300):
        root = root.without_files([f"merge-{number - 1}"])
        root, ordinals = root.with_files([f"merge-{number}"])
        ordinal = ordinals[f"merge-{number}"]
        entries = workshop.entries(keys[:50], ordinal, np.arange(50) + number, keys[:50])
        root = add_delta(workshop.io, root, workshop.location, entries, number)
        while plan := plan_compaction(root):
            rewritten_bases += plan.is_full
            root = compact(workshop.io, root, plan, workshop.location)
        named_files.append(len(root.files))
    assert rewritten_bases == 0
    assert max(named_files) <= before + 20 + 2
    found = workshop.search(root, keys[:100])
    assert {root.files[file] for file in found.file[:50]} == {"merge-299"}
    assert found.position[:50].tolist() == list(range(299, 349))
    assert {root.files[file] for file in found.file[50:]} == {"f0"}


def test_forgotten_files_go_on_hiding_what_the_base_says(workshop):
    keys = np.arange(100, dtype=np.uint64) << np.uint64(48)
    root = add_delta(
        workshop.io, workshop.root, workshop.location, workshop.entries(keys, 0, 1, keys), 1
    )
    root, ordinals = root.with_files(["new", "newer"])
    for path, some in (("new", keys[:10]), ("newer", keys[10:20])):
        entries = workshop.entries(some, ordinals[path], 2, some)
        root = add_delta(workshop.io, root, workshop.location, entries, 2)
    root = root.without_files(["new", "f1"])
    plan = Compaction((2, 3), 0, is_full=False, renumbered_from=root.base_files)
    small = compact(workshop.io, root, plan, workshop.location)
    assert small.files == (*workshop.root.files, "newer")
    # The base may still name it.
    assert small.removed_files == {1}
    found = workshop.search(small, keys[:30])
    assert found.has_entry.tolist() == [False] * 10 + [True] * 20
    assert [small.files[file] for file in found.file[10:]] == ["newer"] * 10 + ["f0"] * 10


def test_the_root_of_an_older_version_is_written_anew_as_a_whole(workshop, monkeypatch):
    monkeypatch.setattr(compaction, "MOST_REMOVED_FILES", 2)
    root, truth = history(workshop, 3)
    document = json.loads(root.without_files(["f1", "f2", "f3"]).to_json())
    del document["base_files"]
    old = replace(Root.from_json(json.dumps(document)), files=root.files)
    assert old.base_files is None
    plan = plan_compaction(old)
    assert plan.is_full
    whole = compact(workshop.io, old, plan, workshop.location)
    assert whole.files == ("f0", *workshop.root.files[4:])
    assert (whole.removed_files, whole.base_files) == (frozenset(), len(whole.files))
    assert known(workshop, whole) == named(workshop, truth, dead=(1, 2, 3))


def test_tasks_share_a_compaction(workshop):
    root, truth = history(workshop, 5)
    plan = plan_compaction(root, force=True)
    plan = type(plan)(plan.generations, 2, plan.is_full)
    shards = [
        compact_buckets(root.to_json(), {}, plan, workshop.location, buckets)
        for buckets in ((0, 2), (1, 3))
    ]
    whole = with_compacted(root, plan, shards)
    assert len(whole.generations()) == 1
    assert whole.bits == 2
    assert known(workshop, whole) == named(workshop, truth)
    newer = workshop.entries(np.array([0]), TOMBSTONE, -1, [9])
    whole = add_delta(workshop.io, whole, workshop.location, newer, 9)
    assert workshop.search(whole, [0]).file.tolist() == [TOMBSTONE]


def test_a_compaction_needs_the_memory_of_a_bucket(workshop):
    """Eight times the buckets, and not twice the memory."""
    peaks = {}
    for bits in (2, 5):
        keys = np.arange(1 << (12 + bits), dtype=np.uint64) << np.uint64(52 - bits)
        root = workshop.root
        for file in (1, 2):
            shard = write_entries(
                workshop.io,
                workshop.location,
                workshop.entries(keys, file, keys % 9, keys),
                file,
                bits,
            )
            root = root.with_shards([shard])
        plan = plan_compaction(root, force=True)
        plan = type(plan)(plan.generations, bits, plan.is_full)
        tracemalloc.start()
        compact(workshop.io, root, plan, workshop.location)
        peaks[bits] = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peaks[5] < 2 * peaks[2]


def test_what_nobody_names_is_found(workshop):
    root, _ = history(workshop, 5)
    merged = compact(workshop.io, root, plan_compaction(root, force=True), workshop.location)
    listed = list_files(workshop.io, workshop.location)
    assert set(listed) == {str(path) for path in Path(workshop.location).iterdir()}
    assert all(abs(one / 1000 - time.time()) < 60 for one in listed.values())
    assert list_files(workshop.io, f"{workshop.location}/none") == {}
    files = dict.fromkeys([*listed, "root-1", "root-2"], 5)
    retained = {"root-2": [one.path for one in merged.shards]}
    stale = {shard.path for shard in root.shards} | {"root-1"}
    assert set(unreferenced(files, retained, 6)) == stale
    assert unreferenced(files, retained, 5) == []
    both = {**retained, "root-1": [one.path for one in root.shards]}
    assert unreferenced(files, both, 6) == []


def test_roots_are_read_at_the_same_time_and_once(workshop, monkeypatch):
    """What retained roots name is asked for in the merge loop, and each root is a request."""
    roots = {}
    for number in range(4):
        keys = np.arange(10, dtype=np.uint64)
        entries = workshop.entries(keys, 0, 1, keys)
        root = add_delta(workshop.io, workshop.root, workshop.location, entries, number)
        path = new_path(workshop.location, "root")
        write_root(workshop.io, path, root)
        roots[path] = root.shards[0].path
    table = SimpleNamespace(
        io=workshop.io,
        metadata=SimpleNamespace(
            properties={},
            statistics=[SimpleNamespace(snapshot_id=1, statistics_path=path) for path in roots],
        ),
    )
    mirror = SimpleNamespace(table=table, index_location=workshop.location, name="a mirror")
    open_file, read = type(workshop.io).new_input, []
    together = threading.Barrier(4, timeout=20)

    def noting(io, path):
        read.append(path)
        together.wait()
        return open_file(io, path)

    monkeypatch.setattr(type(workshop.io), "new_input", noting)
    # Those that this process has written are known.
    assert unreferenced_files(mirror, grace_seconds=-60) == {}
    assert read == []
    monkeypatch.setattr(index_root, "_shard_paths", BucketCache(100))
    for _ in range(2):
        assert unreferenced_files(mirror, grace_seconds=-60) == {}
        assert sorted(read) == sorted(roots)
    table.metadata.statistics.pop()
    path, shard = roots.popitem()
    assert set(unreferenced_files(mirror, grace_seconds=-60)) == {path, shard}
