"""Which files must be read to tell what changed between versions. No data file is opened here.

Rows appear with files that are added. They disappear with files that are removed, and with deletes
that are added to files that stay. Of the latter, position deletes and deletion vectors name the
rows. For equality deletes the affected files are read twice, before and after, and compared; so are
files from which deletes were taken away.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from pyroaring import BitMap64

from neve.lake.chosen_files import ChosenFile
from neve.lake.manifests import Content, FileEntry, Manifest
from neve.lake.positions import read_positions
from neve.versions.file_changes import (
    DeleteIndex,
    FileChanges,
    Step,
    compare_files,
    data_entries,
    delete_manifests,
    files_affected,
    unpartitioned_specs,
)

if TYPE_CHECKING:
    from neve.lake.chosen_files import TableReader

T = TypeVar("T")


@dataclass(frozen=True)
class DeletedRows:
    """Rows that were deleted from a file that stayed.

    Args:
        file: with the deletes that it had before the first of these rows was deleted.
        positions: the rows, by the number of the step that deleted them.
    """

    file: ChosenFile
    positions: dict[int, BitMap64]


@dataclass(frozen=True)
class Comparison:
    """Files that are read before and after a step, since its deletes do not name the rows."""

    number: int
    before: list[ChosenFile]
    before_deletes: list[Manifest]
    after: list[ChosenFile]
    after_deletes: list[Manifest]


@dataclass
class ChangePlan:
    """What to read. The group of each file is the number of its step.

    Args:
        is_net: what one step does and another one undoes is no change.
    """

    is_net: bool = False
    added: list[ChosenFile] = field(default_factory=list)
    removed: list[ChosenFile] = field(default_factory=list)
    deleted: list[DeletedRows] = field(default_factory=list)
    comparisons: list[Comparison] = field(default_factory=list)

    @property
    def steps_that_delete(self) -> set[int]:
        """The steps after which rows may be missing."""
        deleted = (number for one in self.deleted for number in one.positions)
        return {one.group for one in self.removed}.union(
            deleted, (one.number for one in self.comparisons)
        )

    @property
    def steps_that_add(self) -> set[int]:
        return {one.group for one in self.added} | {one.number for one in self.comparisons}

    @property
    def steps_that_do_both(self) -> set[int]:
        """Only where a step both adds and deletes can there be carry-overs and updates."""
        return self.steps_that_add & self.steps_that_delete

    @property
    def has_steps_to_undo(self) -> bool:
        """Whether rows of several steps must be compared with one another."""
        added, deleted = self.steps_that_add, self.steps_that_delete
        return self.is_net and bool(added and deleted) and len(added | deleted) > 1


class Planner:
    """Plans step after step; the steps follow one another."""

    def __init__(self, table: TableReader, *, is_net: bool = False) -> None:
        self._table = table
        self._reader = table.manifests
        self._known: dict[str, FileEntry] = {}
        # Files with deleted rows: further rows of the same file are read together with them.
        self._open: dict[str, DeletedRows] = {}
        self.plan = ChangePlan(is_net)

    def skip(self) -> None:
        """Pass over a commit that changes files but no rows."""
        self._open.clear()
        self._known.clear()

    def add(self, step: Step) -> None:
        """Add the changes of a step to the plan."""
        changes = compare_files(self._reader, step)
        if changes.only_adds_rows:
            # Deletes that were there before never apply to newer files.
            self.plan.added += _chosen(step, changes.added)
            self._know(changes.added)
            return
        before = DeleteIndex.of(self._reader, step.before)
        deleted = None
        if not (before.has_equality or _has_equality(changes.deletes_added)):
            deleted = self._deleted_positions(step, changes)
        if deleted is None:
            self._compare(step, changes)
            self.skip()
            return
        self._add_files(step, changes, before)
        for file, positions in deleted:
            self._delete_rows(step, file, positions, before)
        self._know(changes.added)
        for file in changes.removed:
            self._known.pop(file.path, None)
            self._open.pop(file.path, None)

    def _know(self, files: Iterable[FileEntry]) -> None:
        self._known |= {file.path: file for file in files}

    def _add_files(self, step: Step, changes: FileChanges, before: DeleteIndex) -> None:
        new = DeleteIndex(changes.deletes_added)
        self.plan.added += [
            ChosenFile(one, step.number, new.position_deletes(one)) for one in changes.added
        ]
        self.plan.removed += [
            ChosenFile(one, step.number, before.position_deletes(one)) for one in changes.removed
        ]

    def _deleted_positions(
        self, step: Step, changes: FileChanges
    ) -> list[tuple[FileEntry, BitMap64]] | None:
        """Return the rows that new deletes hide in files that stay.

        None: deletes went, too, so that rows may have come back.
        """
        settled = changes.paths
        added = [one for one in changes.deletes_added if one.data_file not in settled]
        removed = [one for one in changes.deletes_removed if one.data_file not in settled]
        if not {one.data_file for one in removed} <= {one.data_file for one in added} - {None}:
            return None
        deleted = read_positions(self._table.read, added)
        files = self._find(step, deleted.keys() - settled)
        hidden = read_positions(self._table.read, removed)
        if any(positions - deleted[path] for path, positions in hidden.items() if path in files):
            return None
        return [
            (file, deleted[path] - hidden.get(path, BitMap64())) for path, file in files.items()
        ]

    def _delete_rows(
        self, step: Step, file: FileEntry, positions: BitMap64, before: DeleteIndex
    ) -> None:
        rows = self._open.get(file.path)
        if rows is None:
            chosen = ChosenFile(file, step.number, before.position_deletes(file))
            rows = DeletedRows(chosen, {})
            self._open[file.path] = rows
            self.plan.deleted.append(rows)
        for earlier in rows.positions.values():
            positions = positions - earlier
        if positions:
            rows.positions[step.number] = positions

    def _find(self, step: Step, paths: set[str]) -> dict[str, FileEntry]:
        """Return data files of the snapshot before a step; deletes may name some it has not."""
        if not paths <= self._known.keys():
            self._know(data_entries(self._reader, step.before))
        return {path: self._known[path] for path in paths if path in self._known}

    def _compare(self, step: Step, changes: FileChanges) -> None:
        removed = {file.path for file in changes.removed}
        kept = (one for one in data_entries(self._reader, step.before) if one.path not in removed)
        affected = files_affected(changes, kept, unpartitioned_specs(self._table.metadata))
        self.plan.comparisons.append(
            Comparison(
                step.number,
                _chosen(step, [*changes.removed, *affected]),
                delete_manifests(self._reader, step.before),
                _chosen(step, [*changes.added, *affected]),
                delete_manifests(self._reader, step.after),
            )
        )


def layers(items: Iterable[T], path_of: Callable[[T], str]) -> list[list[T]]:
    """Share files out so that no path occurs twice in one scan."""
    shares: list[list[T]] = []
    times: dict[str, int] = defaultdict(int)
    for one in items:
        number = times[path_of(one)]
        times[path_of(one)] += 1
        if number == len(shares):
            shares.append([])
        shares[number].append(one)
    return shares


def _chosen(step: Step, files: Sequence[FileEntry]) -> list[ChosenFile]:
    return [ChosenFile(one, step.number) for one in files]


def _has_equality(entries: Iterable[FileEntry]) -> bool:
    return any(one.content is Content.EQUALITY_DELETES for one in entries)


def files_of(plan: ChangePlan) -> Iterator[FileEntry]:
    """Yield every data file that a plan reads, as often as it reads it."""
    yield from (one.entry for one in (*plan.added, *plan.removed))
    yield from (one.file.entry for one in plan.deleted)
    for comparison in plan.comparisons:
        yield from (one.entry for one in (*comparison.before, *comparison.after))
