"""Events that were merged before: told by a look at the rows they left in the mirror.

A source that delivers at least once sends some events again, mostly those of a moment ago. Their
rows lie in small files of the newest commits. Where a look at few of them does not settle it, the
changelog has to be asked, which takes long.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from neve.index.columns import names_by_id
from neve.merge import columns as cols

if TYPE_CHECKING:
    from pyiceberg.table import Table

MOST_EVENTS = 10_000
"""So many of a task are sent to the driver to be compared."""
_MOST_ROWS = 1_000_000


def all_repeat(mirror: Table, events: pa.Table, path_of: Callable[[str], str]) -> bool:
    """Tell whether each event is the mirror's row just so; False also when that is not known.

    Args:
        events: of sequences that the mirror has, with ROW_FILE, ROW_POSITION and CONTESTED.
        path_of: gives the path of a file as events name it.
    """
    if pc.any(events[cols.CONTESTED]).as_py():
        return False
    columns = [name for name in events.column_names if name not in cols.OF_TIE]
    budget = _MOST_ROWS
    for file in pc.unique(events[cols.ROW_FILE]).to_pylist():
        here = events.filter(pc.equal(events[cols.ROW_FILE], file))
        here = here.sort_by(cols.ROW_POSITION)
        wanted = here.select(columns)
        try:
            found, read = _rows_at(mirror, path_of(file), here[cols.ROW_POSITION], wanted, budget)
        except (OSError, pa.ArrowException):
            return False
        budget -= read
        if found is None or found.to_pylist() != wanted.to_pylist():
            return False
    return True


def _rows_at(
    mirror: Table, path: str, positions: Any, wanted: pa.Table, budget: int
) -> tuple[pa.Table | None, int]:
    """Read rows of a data file, given by rising positions; also say how many were read for it."""
    places = positions.to_numpy()
    with mirror.io.new_input(path).open(seekable=True) as stream:
        file = pq.ParquetFile(stream)
        named = names_by_id(file.schema_arrow)
        ids = [mirror.schema().find_field(name).field_id for name in wanted.column_names]
        if not named.keys() >= set(ids):
            return None, 0
        parts, start, read = [], 0, 0
        for group in range(file.num_row_groups):
            rows = file.metadata.row_group(group).num_rows
            here = places[(places >= start) & (places < start + rows)] - start
            if len(here):
                read += rows
                if read > budget:
                    return None, read
                chosen = file.read_row_group(group, columns=[named[one] for one in ids])
                parts.append(chosen.select([named[one] for one in ids]).take(pa.array(here)))
            start += rows
    found = pa.concat_tables(parts).rename_columns(wanted.column_names)
    return found.cast(wanted.schema), read
