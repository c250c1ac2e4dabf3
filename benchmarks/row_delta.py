"""What a commit costs that deletes rows of many data files, by the number of files.

    python -m benchmarks.row_delta [--files 15,1500]

As a merge does it: the vectors that the files have are read and united with the new positions,
written to one Puffin file, and committed. The first commit gives each file its vector, the others
replace it. Local Spark, an embedded lake in a scratch directory; the median of five.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path

import pyarrow as pa
from pyroaring import BitMap64

import neve
from neve.api import OpenLake
from neve.config import Settings
from neve.lake.data_files import write_data_files
from neve.lake.live_files import live_files
from neve.lake.row_delta import RowChanges, prepare_row_delta
from neve.lake.side_by_side_writes import SideBySideWrites
from neve.lake.vectors import read_vectors, write_vectors
from tests.support.mirrors import Mirror

ROWS_A_FILE = 100
ROUNDS = 5


def filled(lake: OpenLake, files: int) -> Mirror:
    """Make a table of so many small data files, added in one commit."""
    mirror = Mirror(lake)
    mirror.fill(0, 1)
    metadata, io = mirror.table.metadata, mirror.table.io
    ids = range(ROWS_A_FILE)
    rows = pa.table({"id": pa.array(ids, pa.int64()), "v": ["old"] * len(ids)})
    data = [write_data_files(metadata, io, rows)[0] for _ in range(files)]
    mirror.commit(RowChanges(mirror.main, data))
    return mirror


def delete_position(mirror: Mirror, position: int) -> float:
    """Delete a row of each large file; return the seconds that it takes."""
    table, main_id = mirror.table, mirror.main
    paths = [path for path, file in live_files(table, main_id).items() if file.record_count > 1]
    began = time.perf_counter()
    touched = live_files(table, main_id, paths)
    deleted = {path: BitMap64([position]) for path in paths}
    vectors = [file.vector for file in touched.values() if file.vector]
    for path, positions in read_vectors(table.io, vectors).items():
        deleted[path] |= positions
    writes = SideBySideWrites(table.io)
    new_vectors = write_vectors(table.metadata, writes, deleted)
    changes = RowChanges(main_id, (), new_vectors)
    prepare_row_delta(mirror.lake, table, changes, files=touched, writes=writes).commit()
    return time.perf_counter() - began


def tell(name: str, seconds: float) -> None:
    line = {"name": name, "value": round(seconds, 3), "unit": "s", "ratio": None, "wanted": None}
    print(json.dumps(line), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--files", default="15,1500")
    counts = map(int, parser.parse_args().files.split(","))
    with tempfile.TemporaryDirectory(prefix="neve-bench-") as directory:
        catalog = {
            "uri": f"sqlite:///{directory}/catalog.db",
            "warehouse": str(Path(directory) / "warehouse"),
        }
        settings = Settings.model_validate({"catalog": catalog, "spark": {"master": "local[2]"}})
        with neve.open(settings) as lake:
            for at in range(2):
                delete_position(filled(lake, 2), at)  # A warm-up.
            for files in counts:
                mirror = filled(lake, files)
                first = delete_position(mirror, 0)
                tell(f"commit_{files}_files_first_vectors", first)
                seconds = [delete_position(mirror, 1 + n) for n in range(ROUNDS)]
                tell(f"commit_{files}_files", statistics.median(seconds))


if __name__ == "__main__":
    main()
