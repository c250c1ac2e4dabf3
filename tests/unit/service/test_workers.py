"""Several processes that answer as one, with stand-ins for the receiver."""

import os
import signal
import sys

import pytest

from neve.errors import ConfigError
from neve.service.supervise import Backoff, Supervisor
from neve.service.workers import Workers
from tests.support.wait import until

# A receiver's own /metrics and /readyz; the latter says what the file holds.
STAND_IN = """
import pathlib, sys
from neve.observe.http import Pages, serving
from neve.service.supervise import announce
trouble = pathlib.Path(sys.argv[1])
name = b"neve_receive_accepted_requests_total"
text = b"# TYPE %b counter\\n%b 7\\n" % (name, name)
pages = Pages(lambda: text, lambda: trouble.read_text() if trouble.exists() else None)
with serving("127.0.0.1:0", pages) as address:
    announce(int(sys.argv[-1]), {"http": "h", "grpc": "g", "observe": str(address)})
    sys.stdin.read()
"""
# Long enough for a test to look at what is down.
BACKOFF = Backoff(first_seconds=60)


def worker(code, *arguments):
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return Supervisor("stand-in", command, {}, BACKOFF)


@pytest.fixture
def three(tmp_path):
    workers = Workers([worker(STAND_IN, tmp_path / f"trouble-{n}") for n in range(3)])
    workers.start()
    yield workers
    workers.stop()


def test_all_are_ready_or_the_whole_is_not(three, tmp_path):
    assert three.is_up
    assert three.trouble is None
    assert (three.ports.http, three.ports.grpc) == ("h", "g")
    (tmp_path / "trouble-1").write_text("buffer: unavailable")
    (tmp_path / "trouble-2").write_text("buffer: unavailable")
    assert three.trouble == "the receiver takes nothing: buffer: unavailable"
    (tmp_path / "trouble-2").write_text("shutting down")
    assert three.trouble == "the receiver takes nothing: buffer: unavailable; shutting down"


def test_metrics_are_sums_and_keep_what_a_dead_process_had_counted(three):
    assert b"neve_receive_accepted_requests_total 21.0" in three.metrics()
    first, second, _ = three.pids
    os.kill(first, signal.SIGKILL)
    until(lambda: three.trouble == "1 of 3 workers of the receiver is down")
    os.kill(second, signal.SIGKILL)
    until(lambda: three.trouble == "2 of 3 workers of the receiver are down")
    until(lambda: not three.is_up)
    assert b"neve_receive_accepted_requests_total 21.0" in three.metrics()


def test_all_are_stopped(three):
    pids = three.pids
    assert len(pids) == 3
    three.stop()
    assert three.pids == []
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
    three.stop()


def test_a_configuration_that_the_first_refuses_is_tried_once(tmp_path):
    tried = tmp_path / "tried"
    code = "import sys; open(sys.argv[1], 'a').write('.'); sys.exit(2)"
    workers = Workers([worker(code, tried) for _ in range(3)])
    with pytest.raises(ConfigError, match="the stand-in cannot start"):
        workers.start()
    assert tried.read_text() == "."
    assert workers.pids == []


def test_one_that_refuses_later_ends_all(tmp_path):
    workers = Workers([worker(STAND_IN, tmp_path), worker("raise SystemExit(2)")])
    with pytest.raises(ConfigError, match="the stand-in cannot start"):
        workers.start()
    assert workers.pids == []


def test_before_the_start_it_is_down_and_has_no_metrics():
    workers = Workers([worker(STAND_IN)])
    assert workers.trouble == "the receiver is down"
    assert workers.metrics() == b""
    assert workers.ports.http is None
    workers.stop()
