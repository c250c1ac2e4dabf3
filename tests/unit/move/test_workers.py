"""Many manifests are read and rewritten by processes: the same bytes, the same errors."""

import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from neve.errors import ConflictError, NotFoundError, StorageError
from neve.move.inventory import list_files
from neve.move.paths import PathMap, Prefix
from neve.move.rewriter import Rewriter
from neve.move.workers import Processes, Threads
from tests.support.manifest_files import entry, manifest, manifest_list
from tests.support.moving import read_local, write_local
from tests.support.wait import until

MANIFESTS = 300


@pytest.fixture
def processes(tmp_path, monkeypatch):
    # As agents do that are loaded into every process.
    agent = tmp_path / "agent" / "sitecustomize.py"
    agent.parent.mkdir()
    agent.write_text("print('an agent is here', flush=True)")
    monkeypatch.setenv("PYTHONPATH", str(agent.parent))
    with Processes(2) as processes:
        yield processes


@pytest.fixture
def document(tmp_path):
    """Return the metadata of a table with many manifests."""
    source = tmp_path / "source"
    source.mkdir()
    lines = []
    for number in range(MANIFESTS):
        file = source / f"m{number}"
        file.write_bytes(
            manifest(entry(f"{source}/{number}.parquet"), entry(f"{source}/d{number}"))
        )
        lines.append({"manifest_path": str(file), "manifest_length": file.stat().st_size})
    (source / "l").write_bytes(manifest_list(*lines))
    snapshots = [{"snapshot-id": 1, "manifest-list": f"{source}/l"}]
    return {"format-version": 2, "location": str(source), "snapshots": snapshots}


def rewritten(document, target, workers):
    """Rewrite a table; return its inventory and the files that were written."""
    inventory = list_files(document, read_local, workers=workers)
    paths = PathMap([Prefix(document["location"], "/new")])
    write = partial(write_below, str(target))
    Rewriter(read_local, write, paths, "/new", workers=workers).rewrite(document, inventory)
    return inventory, {file.name: file.read_bytes() for file in target.rglob("*.avro")}


def write_below(directory, path, content):
    write_local(directory + path, content)


def fail(error, item):
    raise error


def is_running(process):
    status = Path(f"/proc/{process}/stat")
    return status.exists() and status.read_text().rpartition(")")[2].split()[0] != "Z"


def test_processes_write_the_same_as_threads(document, tmp_path, processes):
    by_threads = rewritten(document, tmp_path / "by-threads", Threads())
    by_processes = rewritten(document, tmp_path / "by-processes", processes)
    assert by_processes == by_threads
    assert len(by_processes[1]) == MANIFESTS + 1
    assert len(processes.ids) == 2


def test_few_items_start_no_process(processes):
    assert list(processes.results(str, range(9))) == list(map(str, range(9)))
    assert processes.ids == []


def test_an_error_is_reported_as_itself(document, tmp_path, processes):
    damaged = tmp_path / "source" / "m17"
    damaged.write_bytes(damaged.read_bytes()[:-20])
    [problem] = list_files(document, read_local, workers=processes).problems
    assert (problem.path, problem.reason.split(":")[0]) == (str(damaged), "it cannot be read")
    error = NotFoundError("it does not exist", hint="look elsewhere", retryable=True)
    with pytest.raises(NotFoundError) as raised:
        list(processes.results(partial(fail, error), range(MANIFESTS)))
    assert vars(raised.value) == vars(error)
    # The processes go on with other work, and after an error that nobody foresaw.
    with pytest.raises(ValueError, match="invalid literal"):
        list(processes.results(int, ["1"] * MANIFESTS + ["x"]))
    assert list(processes.results(int, ["1"] * MANIFESTS)) == [1] * MANIFESTS


def test_a_process_that_is_killed_is_an_error(processes):
    with pytest.raises(StorageError, match="has ended: -9"):
        list(processes.results(kill_itself, range(MANIFESTS)))


def kill_itself(_):
    os.kill(os.getpid(), signal.SIGKILL)


def test_processes_that_are_closed_end_and_start_no_more(processes):
    work = processes.results(str, range(MANIFESTS))
    assert next(work) == "0"
    ids = processes.ids
    assert all(map(is_running, ids))
    processes.close()
    assert not any(map(is_running, ids))
    with pytest.raises(ConflictError, match="stopped"):
        list(processes.results(str, range(MANIFESTS)))


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_processes_end_with_the_one_that_started_them(number):
    program = (
        "import signal\n"
        "from neve.move.workers import Processes\n"
        # A shell that runs tests in the background has them ignore it.
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "processes = Processes(2)\n"
        "assert sum(processes.results(int, range(300))) == 44850\n"
        "print(*processes.ids, flush=True)\n"
        "signal.pause()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ) as parent:
        try:
            ids = [int(each) for each in parent.stdout.readline().split()]
            assert len(ids) == 2
            # As a terminal does it: to all of them.
            send = os.kill if number == signal.SIGKILL else os.killpg
            send(parent.pid, number)
            until(lambda: not any(map(is_running, ids)))
        finally:
            parent.kill()
