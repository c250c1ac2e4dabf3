"""Rewriting a table's metadata against Iceberg's `rewrite_table_path`, the same table.

    python -m benchmarks.move_rewrite [snapshots]

A table of 500 snapshots, four manifests of 50 files each: Spark writes the first commit, and the
others are made of its Avro files, with other names and ids. As after fast appends, each manifest
list names all manifests so far. Ours lists the files and rewrites them, in a process of its own, so
that its memory is measured; the procedure runs in a warm Spark session. They take turns.
"""

from __future__ import annotations

import copy
import io
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import fastavro

import neve
from neve.config import Settings
from neve.lake import Lake
from neve.lake.avro_files import read_header
from neve.move.inventory import list_files
from neve.move.paths import PathMap, Prefix
from neve.move.rewriter import Rewriter
from neve.move.workers import Processes

SNAPSHOTS = 500
MANIFESTS_PER_SNAPSHOT = 4
FILES_PER_MANIFEST = 50
ROUNDS = 3
NAME = "bench.moved"


def local_file(path: str) -> Path:
    return Path("/" + path.removeprefix("file:").lstrip("/"))


def read_file(path: str) -> bytes:
    return local_file(path).read_bytes()


def write_file(path: str, content: bytes) -> None:
    """Write a file that is not there; as little as Hadoop's local files, it is not synchronised."""
    file = local_file(path)
    try:
        with file.open("xb") as stream:
            stream.write(content)
    except FileNotFoundError:
        file.parent.mkdir(parents=True, exist_ok=True)
        write_file(path, content)


class Template:
    """An Avro file whose records are written again with other values."""

    def __init__(self, path: str) -> None:
        content = read_file(path)
        self.header = read_header(content, path)
        [self.record] = list(fastavro.reader(io.BytesIO(content)))

    def write(self, path: Path, records: list[Any]) -> int:
        metadata = {
            key: value.decode()
            for key, value in self.header.metadata.items()
            if not key.startswith("avro.")
        }
        with path.open("wb") as stream:
            fastavro.writer(
                stream, self.header.schema, records, codec=self.header.codec, metadata=metadata
            )
        return path.stat().st_size


def make_table(lake: Lake, snapshots: int) -> str:
    """Return the metadata file of a table with so many snapshots."""
    lake.sql(
        f"CREATE TABLE {NAME} (id BIGINT, name STRING, amount DOUBLE, day DATE, a INT, b INT, "
        "c STRING, d TIMESTAMP, e DECIMAL(18, 2), f BOOLEAN) USING iceberg PARTITIONED BY (day)"
    )
    lake.sql(
        f"INSERT INTO {NAME} SELECT 1L, 'name', 1.5D, DATE'2026-01-01', 1, 2, 'c', "
        "TIMESTAMP'2026-01-01 00:00:00', 3.25, true"
    )
    path = lake.load(lake.ref(NAME)).metadata_location
    document = json.loads(read_file(path))
    [snapshot] = document["snapshots"]
    lists = Template(snapshot["manifest-list"])
    entries = Template(lists.record["manifest_path"])
    directory = local_file(path).parent
    lines: list[Any] = []
    document["snapshots"], document["snapshot-log"] = [], []
    for number in range(1, snapshots + 1):
        snapshot_id = 10_000 + number
        for part in range(MANIFESTS_PER_SNAPSHOT):
            manifest = (
                directory / f"{number:05}-{part}-0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9-m0.avro"
            )
            length = entries.write(
                manifest, _entries(entries.record, document["location"], manifest.stem, snapshot_id)
            )
            lines.append(_line(lists.record, manifest, length, snapshot_id, number))
        manifest_list = directory / f"snap-{snapshot_id}-1-0a1b2c3d.avro"
        lists.write(manifest_list, lines)
        document["snapshots"].append(_snapshot(snapshot, number, snapshot_id, manifest_list))
        entry = {"timestamp-ms": snapshot["timestamp-ms"] + number, "snapshot-id": snapshot_id}
        document["snapshot-log"].append(entry)
    document["current-snapshot-id"] = 10_000 + snapshots
    document["last-sequence-number"] = snapshots
    document["last-updated-ms"] = snapshot["timestamp-ms"] + snapshots
    document["refs"] = {"main": {"snapshot-id": 10_000 + snapshots, "type": "branch"}}
    document["metadata-log"] = []
    made = directory / "00001-0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9.metadata.json"
    made.write_text(json.dumps(document))
    lake.sql(f"CALL system.register_table('bench.many', 'file://{made}')")
    return f"file://{made}"


def _entries(record: Any, location: str, stem: str, snapshot_id: int) -> list[Any]:
    entries = []
    for number in range(FILES_PER_MANIFEST):
        entry = copy.deepcopy(record)
        entry["snapshot_id"] = snapshot_id
        entry["data_file"]["file_path"] = (
            f"{location}/data/day=2026-01-01/{number:05}-{stem}.parquet"
        )
        entries.append(entry)
    return entries


def _line(record: Any, manifest: Path, length: int, snapshot_id: int, number: int) -> Any:
    return {
        **record,
        "manifest_path": f"file://{manifest}",
        "manifest_length": length,
        "added_snapshot_id": snapshot_id,
        "sequence_number": number,
        "min_sequence_number": number,
        "added_files_count": FILES_PER_MANIFEST,
    }


def _snapshot(snapshot: Any, number: int, snapshot_id: int, manifest_list: Path) -> Any:
    made = {
        **snapshot,
        "snapshot-id": snapshot_id,
        "sequence-number": number,
        "timestamp-ms": snapshot["timestamp-ms"] + number,
        "manifest-list": f"file://{manifest_list}",
    }
    if number > 1:
        made["parent-snapshot-id"] = snapshot_id - 1
    return made


def rewrite_here(metadata: str, source: str, target: str) -> None:
    """Rewrite a table; print how long it took, and the peaks of all processes' memory together."""
    started = time.monotonic()
    document = json.loads(read_file(metadata))
    paths = PathMap([Prefix(source, target)])
    with Processes() as processes:
        inventory = list_files(document, read_file, workers=processes)
        listed = time.monotonic() - started
        rewriter = Rewriter(read_file, write_file, paths, target, workers=processes)
        rewritten = rewriter.rewrite(document, inventory)
        seconds = time.monotonic() - started
        peak = sum(map(peak_megabytes, ["self", *processes.ids]))
    measured = {"seconds": seconds, "listing": listed, "megabytes": peak}
    print(json.dumps({**measured, "rewritten": rewritten.rewrite_count}))


def peak_megabytes(process: str | int) -> float:
    status = Path(f"/proc/{process}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


def ours(metadata: str, source: str, target: str) -> dict[str, float]:
    shutil.rmtree(local_file(target), ignore_errors=True)
    command = [sys.executable, "-m", "benchmarks.move_rewrite", "here", metadata, source, target]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    measured: dict[str, float] = json.loads(done.stdout)
    return measured


def theirs(lake: Lake, source: str, target: str, staging: Path) -> float:
    shutil.rmtree(staging, ignore_errors=True)
    started = time.monotonic()
    lake.sql(
        "CALL system.rewrite_table_path(table => 'bench.many', "
        f"source_prefix => '{source}', target_prefix => '{target}', "
        f"staging_location => 'file://{staging}')"
    ).collect()
    return time.monotonic() - started


def report(name: str, value: float, unit: str, ratio: float, wanted: str) -> None:
    line = {"name": name, "value": round(value, 3), "unit": unit, "ratio": round(ratio, 3)}
    print(json.dumps({**line, "wanted": wanted}), flush=True)


def run(lake: Lake, directory: Path, snapshots: int) -> None:
    metadata = make_table(lake, snapshots)
    source = str(json.loads(read_file(metadata))["location"])
    target = f"file://{directory}/elsewhere/moved"
    theirs(lake, source, target, directory / "staging")
    rounds = [
        (ours(metadata, source, target), theirs(lake, source, target, directory / "staging"))
        for _ in range(ROUNDS)
    ]
    seconds = statistics.median(measured["seconds"] for measured, _ in rounds)
    procedure = statistics.median(other for _, other in rounds)
    print(json.dumps(rounds), file=sys.stderr)
    report("move_rewrite", seconds, "s", procedure / seconds, ">= 5")
    peak = max(measured["megabytes"] for measured, _ in rounds)
    report("move_rewrite_memory", peak, "MB", peak / 1024, "<= 1")


def main(snapshots: int = SNAPSHOTS) -> None:
    with tempfile.TemporaryDirectory(prefix="neve-bench-") as directory:
        settings = Settings.model_validate(
            {
                "catalog": {
                    "type": "sqlite",
                    "uri": f"sqlite:///{directory}/catalog.db",
                    "warehouse": str(Path(directory) / "warehouse"),
                },
                "spark": {"conf": {"spark.driver.memory": "4g"}},
            }
        )
        with neve.open(settings) as lake:
            lake.sql("CREATE NAMESPACE bench")
            run(lake, Path(directory), snapshots)


if __name__ == "__main__":
    if sys.argv[1:2] == ["here"]:
        # Of the module that processes import, whose functions they are sent.
        from benchmarks.move_rewrite import rewrite_here as rewrite

        rewrite(*sys.argv[2:])
    else:
        main(*map(int, sys.argv[1:]))
