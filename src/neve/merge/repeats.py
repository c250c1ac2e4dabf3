"""Events that the mirror has just so: told by a look at the rows they would replace.

A source that delivers at least once sends some events again, mostly those of a moment ago. Their
rows lie in small files of the newest commits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from neve.index.columns import names_by_id
from neve.merge import columns as cols

if TYPE_CHECKING:
    from pyiceberg.io import FileIO
    from pyiceberg.schema import Schema

# Row groups of so many rows are read at most, where not knowing is no loss.
MOST_ROWS = 1_000_000


def equal_rows(
    schema: Schema,
    io: FileIO,
    events: pa.Table,
    columns: Sequence[str],
    missing: Sequence[str],
    path_of: Callable[[str], str | None],
    most_rows: int | None = MOST_ROWS,
) -> npt.NDArray[np.bool_]:
    """Tell which events are the mirror's rows just so; False also where that is not known.

    Args:
        events: with ROW_FILE and ROW_POSITION.
        columns: are compared, and of those that are `missing` in the changelog the values.
        path_of: gives the path of a file as events name it, or None.
        most_rows: how many may be read for it; None: as many as it takes.
    """
    is_equal = np.zeros(len(events), np.bool_)
    missing = [name for name in missing if events[name].null_count < len(events)]
    files = events[cols.ROW_FILE].combine_chunks().dictionary_encode()
    numbers = np.asarray(files.indices)
    positions = events[cols.ROW_POSITION].to_numpy()
    for number, path in enumerate(map(path_of, files.dictionary.to_pylist())):
        if path is None:
            continue
        places = np.flatnonzero(numbers == number)
        places = places[np.argsort(positions[places], kind="stable")]
        wanted = events.select([*columns, *missing]).take(pa.array(places))
        try:
            rows, read = _rows_at(schema, io, path, positions[places], wanted, most_rows)
        except (OSError, pa.ArrowException):
            continue
        if most_rows is not None:
            most_rows -= read
        if rows is not None:
            pairs = zip(rows.to_pylist(), wanted.to_pylist(), strict=True)
            is_equal[places] = [
                row == event | {name: row[name] for name in missing if event[name] is None}
                for row, event in pairs
            ]
    return is_equal


def _rows_at(
    schema: Schema, io: FileIO, path: str, positions: Any, wanted: pa.Table, most_rows: int | None
) -> tuple[pa.Table | None, int]:
    """Read rows of a data file, given by rising positions; also say how many were read for it."""
    with io.new_input(path).open(seekable=True) as stream:
        file = pq.ParquetFile(stream)
        named = names_by_id(file.schema_arrow)
        ids = [schema.find_field(name).field_id for name in wanted.column_names]
        if not named.keys() >= set(ids):
            return None, 0
        names = [named[field_id] for field_id in ids]
        parts, start, read = [], 0, 0
        for group in range(file.num_row_groups):
            rows = file.metadata.row_group(group).num_rows
            here = positions[(positions >= start) & (positions < start + rows)] - start
            if len(here):
                read += rows
                if most_rows is not None and read > most_rows:
                    return None, read
                chosen = file.read_row_group(group, columns=names).select(names)
                parts.append(chosen.take(pa.array(here)))
            start += rows
    return pa.concat_tables(parts).rename_columns(wanted.column_names).cast(wanted.schema), read
