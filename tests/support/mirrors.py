"""A table of format v3, changed as a merge changes it."""

from __future__ import annotations

import uuid

from pyroaring import BitMap64

from neve.lake.catalog import load_table
from neve.lake.data_files import write_data_files
from neve.lake.live_files import current_deletes
from neve.lake.row_delta import RowChanges, commit_row_delta
from neve.lake.vectors import read_vector, write_vectors
from tests.support.readers import read_with_all


class Mirror:
    """Rows with an id, replaced and deleted by position."""

    def __init__(self, lake, columns="id bigint, v string", more=""):
        self.lake = lake
        self.identifier = (f"n{uuid.uuid4().hex[:8]}", "t")
        self.name = ".".join(self.identifier)
        lake.sql(f"CREATE NAMESPACE {self.identifier[0]}").collect()
        lake.sql(
            f"CREATE TABLE {self.name} ({columns}) USING iceberg {more} TBLPROPERTIES "
            "('format-version'='3', 'write.delete.mode'='merge-on-read')"
        ).collect()

    @property
    def table(self):
        return load_table(self.lake.profile, self.lake.catalog(), self.identifier)

    @property
    def main(self):
        return self.table.metadata.current_snapshot_id

    def fill(self, start, stop):
        self.lake.sql(
            f"INSERT INTO {self.name} SELECT /*+ COALESCE(1) */ id, 'old' "
            f"FROM range({start}, {stop})"
        ).collect()

    def where(self, *ids):
        """Return the positions of rows by file."""
        found = self.lake.query(
            f"SELECT _file, _pos FROM {self.name} WHERE id IN ({', '.join(map(str, ids))})"
        ).to_pylist()
        by_file = {}
        for row in found:
            by_file.setdefault(row["_file"], BitMap64()).add(row["_pos"])
        return by_file

    def changes(self, rows=None, deleted=None, base=None, **summary):
        """Write everything a commit needs, old vectors united with what is deleted now."""
        table, base = self.table, base or self.main
        deleted = deleted or {}
        old = current_deletes(table, base, deleted) if deleted else {}
        united = {
            path: positions | (read_vector(table.io, old[path]) if path in old else BitMap64())
            for path, positions in deleted.items()
        }
        files = write_data_files(table.metadata, table.io, rows) if rows is not None else []
        vectors = write_vectors(table.metadata, table.io, united)
        return RowChanges(base, files, vectors, summary=summary)

    def commit(self, changes, **options):
        return commit_row_delta(self.lake, self.table, changes, **options)

    def read(self):
        return read_with_all(self.lake, self.name)
