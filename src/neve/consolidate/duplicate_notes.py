"""Remember which requests a batch left out as copies, so that a replay leaves them out as well.

A batch names them in its snapshot's summary, in the very commit that shows its rows. Before its
segments are retired, they are noted beside them: snapshots are expired sooner than segments.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from neve.publish.batch import HELD_PREFIX

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from neve.consolidate.duplicates import Place
    from neve.lake.staging import StagingTable

DUPLICATES = "neve.duplicates"


def encode_duplicates(places: Iterable[Place]) -> dict[str, str]:
    """Return the summary entry that names these requests; none without any."""
    by_stream: dict[str, dict[int, list[int]]] = {}
    for stream, segment, position in sorted(places):
        by_stream.setdefault(stream, {}).setdefault(segment, []).append(position)
    return {DUPLICATES: json.dumps(by_stream, separators=(",", ":"))} if by_stream else {}


def decode_duplicates(summary: Mapping[str, str]) -> Iterator[Place]:
    """Yield the requests that a summary names."""
    for stream, segments in json.loads(summary.get(DUPLICATES, "{}")).items():
        for segment, positions in segments.items():
            for position in positions:
                yield stream, int(segment), position


def find_duplicates_left_out(
    tables: Mapping[str, StagingTable], uncommitted: Mapping[str, Iterable[Place]]
) -> dict[tuple[str, int], dict[str, list[int]]]:
    """Return which requests the tables' batches left out, as far as snapshots are kept.

    By stream and segment: for each table, the requests' positions.

    Args:
        uncommitted: what was left out by batches that had no rows, and so no commit.
    """
    left_out: dict[tuple[str, int], dict[str, list[int]]] = {}
    for name, table in tables.items():
        places = {*_left_out(table), *uncommitted.get(name, ())}
        for stream, segment, position in sorted(places):
            positions = left_out.setdefault((stream, segment), {})
            positions.setdefault(name, []).append(position)
    return left_out


def _left_out(table: StagingTable) -> Iterator[Place]:
    held = (staged.summary for staged in table.staged(HELD_PREFIX))
    for summary in (*table.published_summaries(), *held):
        yield from decode_duplicates(summary)
