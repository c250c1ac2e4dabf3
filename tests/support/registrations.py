"""Registrations of a table that has no files: its metadata is written as it is."""

from __future__ import annotations

import copy
import uuid

from neve.lake.pyiceberg_catalogs import NeveRestCatalog
from neve.lake.registering import registered_table
from neve.lake.table_ref import TableRef
from neve.move.leave_behind import leave_behind
from neve.move.register import read_target, register
from neve.move.spec import Existing
from tests.support.table_documents import TableHistory, write_metadata

REFUSE, EXTEND, REPLACE = Existing


class Move:
    """Moves of one table, time after time."""

    def __init__(self, lake, location, name="orders", format_version=2):
        self.lake = lake
        self.target = TableRef("lake", (f"t_{uuid.uuid4().hex[:12]}", name))
        # Addresses are taken letter by letter.
        self.source = TableHistory(f"{location}/a b%2F+ü/{uuid.uuid4().hex}", format_version)

    def moved(self):
        version = leave_behind(self.source.metadata(), "orders").metadata
        return write_metadata(self.lake.catalog().properties, version)

    def run(self, existing=REFUSE, moved=None, **options):
        expected = read_target(self.lake, self.target)
        return register(
            self.lake, self.target, moved or self.moved(), existing, expected, **options
        )

    def read(self):
        return read_target(self.lake, self.target)


def make_move(lake, tmp_path, **options):
    on_disk = lake.profile.settings.type == "sqlite"
    location = (tmp_path / "moved").as_uri() if on_disk else "s3://lake/moved"
    return Move(lake, location, **options)


def append_at(document, branch="main"):
    history = TableHistory(document["location"], document["format-version"])
    history.document, history.next_id = document, 901
    history.append(branch=branch)


def roll_back(document):
    first = min(each["snapshot-id"] for each in document["snapshots"])
    document["refs"]["main"]["snapshot-id"] = document["current-snapshot-id"] = first
    document["snapshot-log"].append(
        {"snapshot-id": first, "timestamp-ms": document["last-updated-ms"]}
    )


def commit_at_target(move, change):
    """Commit at the target, as its own users do."""
    table = registered_table(move.lake, move.target)
    base = table.read()
    document = copy.deepcopy(dict(base.document))
    change(document)
    if isinstance(move.lake.catalog(), NeveRestCatalog) and _removed(base, document):
        removal = {"action": "remove-snapshots", "snapshot-ids": _removed(base, document)}
        move.lake.catalog().update_table(move.target.identifier, [], [removal])
    else:
        table.extend(base, document)


def _removed(base, document):
    return sorted(base.snapshots.keys() - {each["snapshot-id"] for each in document["snapshots"]})


def without_snapshot(document, snapshot_id):
    return {
        key: [each for each in document[key] if each["snapshot-id"] != snapshot_id]
        for key in ("snapshots", "snapshot-log")
    }
