"""Copying a table's files between two S3 servers, against rclone on the same files.

    python -m benchmarks.move [megabytes]

Two servers on this machine, with a bucket and a login each. The files are those of a table: a
quarter of the bytes in files of 256 KiB, the rest in files of 32 MiB. Both copy sixteen files at a
time and compare checksums; they take turns, and the median of several rounds counts. The peak of
our memory is measured, too: it does not depend on the size of the files.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from neve.lake.file_store import FileStore
from neve.limits import KIB, MIB
from neve.move.copy import CopyJob, copy_files
from neve.move.rate_limit import RateLimit
from tests.support.file_stores import s3_store
from tests.support.install import S3, install
from tests.support.servers import REGION, S3Server, running_s3

MEGABYTES = 1024
SMALL_BYTES, LARGE_BYTES = 256 * KIB, 32 * MIB
FILES_AT_ONCE = 16
ROUNDS = 3
WANTED_SHARE = 0.8
MOST_MEMORY_MEGABYTES = 1000


def write_files(directory: Path, megabytes: int) -> dict[str, int]:
    """Write what the first server serves; every file has other bytes."""
    directory.mkdir(parents=True)
    small = megabytes * MIB // 4 // SMALL_BYTES
    large = megabytes * MIB * 3 // 4 // LARGE_BYTES
    sizes = {f"data/{number:05}.parquet": SMALL_BYTES for number in range(small)}
    sizes |= {f"data/large-{number:03}.parquet": LARGE_BYTES for number in range(large)}
    (directory / "data").mkdir()
    for name, size in sizes.items():
        (directory / name).write_bytes(os.urandom(size))
    return sizes


def copy_with_neve(
    source: FileStore, target: FileStore, sizes: dict[str, int], prefixes: tuple[str, str]
) -> None:
    copy_files(
        [
            CopyJob(f"{prefixes[0]}/{name}", f"{prefixes[1]}/{name}", size)
            for name, size in sizes.items()
        ],
        source,
        target,
        done=lambda _job, _copied: None,
        already={},
        files_at_once=FILES_AT_ONCE,
        limit=RateLimit(None),
    )


def copy_with_rclone(source: str, target: str) -> None:
    rclone = Path(sys.executable).with_name("rclone")
    options = ("--transfers", str(FILES_AT_ONCE), "--checkers", str(FILES_AT_ONCE))
    subprocess.run([rclone, "copy", *options, source, target], check=True, capture_output=True)


def rclone_remote(server: S3Server, prefix: str) -> str:
    login = f"access_key_id={server.access_key},secret_access_key='{server.secret_key}'"
    place = f"endpoint='{server.endpoint}',region={REGION},no_check_bucket=true"
    return f":s3,provider=Other,{login},{place}:{server.bucket}/{prefix}"


def seconds(work: Callable[[], None]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def run(directory: Path, megabytes: int) -> None:
    with running_s3(directory / "first") as first, running_s3(directory / "second") as second:
        sizes = write_files(directory / "first" / "s3" / first.bucket / "table", megabytes)
        rounds = [one_round(directory, (first, second), sizes, number) for number in range(ROUNDS)]
    ours, theirs = (statistics.median(times) for times in zip(*rounds, strict=True))
    speed = sum(sizes.values()) / MIB / ours
    report("move_copy", speed, "MiB/s", theirs / ours, f">= {WANTED_SHARE}")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / KIB
    report("move_copy_memory", peak, "MiB", None, f"<= {MOST_MEMORY_MEGABYTES}")


def one_round(
    directory: Path, servers: tuple[S3Server, S3Server], sizes: dict[str, int], number: int
) -> tuple[float, float]:
    """Return the seconds of both; whose turn is first changes."""
    first, second = servers
    prefixes = (f"s3://{first.bucket}/table", f"s3://{second.bucket}/neve")
    remotes = (rclone_remote(first, "table"), rclone_remote(second, "rclone"))
    with s3_store(first) as source, s3_store(second) as target:
        turns = {
            "neve": lambda: copy_with_neve(source, target, sizes, prefixes),
            "rclone": lambda: copy_with_rclone(*remotes),
        }
        names = list(turns) if number % 2 == 0 else list(turns)[::-1]
        took = {name: seconds(turns[name]) for name in names}
    for name in names:
        copied = directory / "second" / "s3" / second.bucket / name
        if sum(file.stat().st_size for file in copied.rglob("*.parquet")) != sum(sizes.values()):
            raise SystemExit(f"{name} has not copied all files")
        shutil.rmtree(copied)
    return took["neve"], took["rclone"]


def report(name: str, value: float, unit: str, ratio: float | None, wanted: str) -> None:
    rounded = None if ratio is None else round(ratio, 2)
    line = {
        "name": name,
        "value": round(value, 1),
        "unit": unit,
        "ratio": rounded,
        "wanted": wanted,
    }
    print(json.dumps(line), flush=True)


def main() -> None:
    install(print, parts=(S3,), tools=())
    megabytes = int(sys.argv[1]) if len(sys.argv) > 1 else MEGABYTES
    with tempfile.TemporaryDirectory(prefix="neve-bench-") as directory:
        run(Path(directory), megabytes)


if __name__ == "__main__":
    main()
