"""Expiry deletes exactly the files that no kept snapshot has, whatever happened before."""

from __future__ import annotations

import itertools
import random

import pytest

from neve.lake import manifests
from neve.lake.shared_lists import SharedLists
from neve.lake.unreachable import unreachable_files
from tests.support.reachable import FileTable

BY_SPARK = {"operation": "append", "spark.app.id": "local-1"}


class History:
    """A table that is changed at random, and expired at random in between."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.table = FileTable(self.chance, self.chance.choice((1, 2, 2, 2)))
        self.table.block_bytes = (16_000, 1, 200)[seed % 3]
        self.numbers = itertools.count()
        self.was_main: set[int] = set()
        # The files that an unpublished snapshot added.
        self.staged: dict[int, list[str]] = {}
        self.deleted: set[str] = set()
        self.compared_all = 0

    def live(self, steps: int) -> None:
        self.append()
        steps_of_all = (
            *(self.append,) * 4,
            *(self.append_merged,) * 2,
            *(self.add_again,) * 2,
            *(self.delete,) * 3,
            *(self.compact,) * 2,
            self.rewrite_manifests,
            *(self.stage,) * 2,
            *(self.restage,) * 2,
            self.publish,
            self.cherry_pick,
            self.roll_back,
            *(self.tag,) * 2,
            *(self.drop_tag,) * 2,
            *(self.expire,) * 3,
        )
        for _ in range(steps):
            self.chance.choice(steps_of_all)()
        self.expire()

    @property
    def main(self) -> int | None:
        return self.table.refs.get("main")

    @property
    def lines(self):
        return list(self.table.lines[self.main]) if self.main is not None else []

    def live_paths(self) -> list[str]:
        return [path for line in self.lines for path, *_ in line.files]

    def new_files(self, count: int) -> list[str]:
        return [f"{self.table.location}/data/f{next(self.numbers)}" for _ in range(count)]

    def move_main(self, number: int) -> None:
        self.table.refs["main"] = number
        self.table.log.append(number)
        self.was_main.add(number)

    def append(self) -> None:
        files = self.new_files(self.chance.randint(1, 3))
        self.move_main(self.table.commit(self.main, self.lines, files, summary=BY_SPARK))

    def append_merged(self) -> None:
        files, lines = self.new_files(1), self.table.merged(self.lines)
        self.move_main(self.table.commit(self.main, lines, files, summary=BY_SPARK))

    def add_again(self) -> None:
        """Add a file that was deleted, as `add_files` does, which says nothing of it."""
        snapshots = self.table.lines.values()
        known = {path for lines in snapshots for line in lines for path, *_ in line.files}
        if deleted := sorted(known.difference(self.live_paths())):
            files = [self.chance.choice(deleted)]
            self.move_main(self.table.commit(self.main, self.lines, files))

    def delete(self) -> None:
        paths = self.live_paths()
        chosen = self.chance.sample(paths, self.chance.randint(0, len(paths)))
        summary = {"operation": "delete"}
        self.move_main(self.table.commit(self.main, self.lines, [], chosen, summary=summary))

    def compact(self) -> None:
        paths = self.live_paths()
        chosen = self.chance.sample(paths, min(3, len(paths)))
        files, summary = self.new_files(1), {"operation": "replace"}
        self.move_main(self.table.commit(self.main, self.lines, files, chosen, summary=summary))

    def rewrite_manifests(self) -> None:
        lines = self.lines
        half = len(lines) // 2
        lines = [*self.table.merged(lines[:half]), *self.table.merged(lines[half:])]
        self.move_main(self.table.commit(self.main, lines, [], summary={"operation": "replace"}))

    def stage(self) -> None:
        self.stage_files(self.new_files(2))

    def stage_files(self, files: list[str], summary: dict[str, str] | None = None) -> None:
        summary = {"neve.batch-id": files[0], **(summary or {})}
        number = self.table.commit(self.main, self.lines, files, summary=summary)
        self.staged[number] = files
        self.table.refs[f"staged{number}"] = number

    def restage(self) -> None:
        """Stage the same files again on what is `main` now, as publishing does."""
        if present := [each for each in self.staged if each in self.table.snapshots]:
            number = self.chance.choice(present)
            files = self.staged.pop(number)
            self.table.refs.pop(f"staged{number}", None)
            if not set(files) & set(self.live_paths()):
                self.stage_files(files, {"source-snapshot-id": str(number)})

    def publish(self) -> None:
        for number in [each for each in self.staged if each in self.table.snapshots]:
            if self.table.snapshots[number].get("parent-snapshot-id") == self.main:
                self.move_main(number)
                self.table.refs.pop(f"staged{number}", None)
                del self.staged[number]
                return

    def cherry_pick(self) -> None:
        if present := [each for each in self.staged if each in self.table.snapshots]:
            number = self.chance.choice(present)
            files = self.staged[number]
            if set(files) & set(self.live_paths()):
                return
            summary = {"source-snapshot-id": str(number)}
            self.move_main(self.table.commit(self.main, self.lines, files, summary=summary))

    def roll_back(self) -> None:
        self.move_main(self.chance.choice(list(self.table.snapshots)))

    def tag(self) -> None:
        name = f"tag{next(self.numbers)}"
        self.table.refs[name] = self.chance.choice(list(self.table.snapshots))

    def drop_tag(self) -> None:
        if tags := [name for name in self.table.refs if name != "main"]:
            del self.table.refs[self.chance.choice(tags)]

    def expire(self) -> None:
        table = self.table
        free = [number for number in table.snapshots if number not in table.refs.values()]
        # Mostly the oldest, as upkeep does, and sometimes any.
        if self.chance.random() < 0.7:
            removed = free[: self.chance.randint(0, len(free))]
        else:
            removed = self.chance.sample(free, self.chance.randint(0, len(free)))
        before, had = table.metadata(), table.reached()
        table.remove(removed)
        after = table.metadata()
        read: list[str] = []

        def reading(path: str) -> bytes:
            assert path not in self.deleted, "a file is read that was deleted before"
            read.append(path)
            return table.read(path)

        former = self.was_main if self.chance.random() < 0.5 else ()
        found = unreachable_files(reading, before, after, removed, former)
        assert len(found.paths) == len(set(found.paths))
        assert set(found.paths) == had - table.reached()
        self.deleted |= set(found.paths)


@pytest.mark.parametrize("seeds", [range(60), range(1000, 1060)], ids=["first", "second"])
def test_exactly_what_no_kept_snapshot_has_is_unreachable(seeds):
    for seed in seeds:
        History(seed).live(40)


@pytest.mark.parametrize("most_lines", [0, 20])
def test_lists_that_do_not_fit_into_memory_change_nothing(most_lines, monkeypatch):
    few = SharedLists(most_lines, manifests._decode_lines)
    monkeypatch.setattr(manifests, "_lists_kept", few)
    for seed in range(30):
        History(seed).live(40)


@pytest.mark.soak
def test_exactly_what_no_kept_snapshot_has_is_unreachable_in_many_histories():
    for seed in range(2000, 5000):
        History(seed).live(60)
