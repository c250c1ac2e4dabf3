"""A child that is kept running, with a stand-in for the receiver."""

import os
import signal
import sys

import pytest

from neve.errors import ConfigError
from neve.service.supervise import Backoff, Supervisor
from tests.support.wait import until

QUICK = Backoff(first_seconds=0.01, most_seconds=0.02, grace_seconds=10)
READY = (
    "import sys; from neve.service.supervise import announce\n"
    "announce(int(sys.argv[-1]), {'http': 'here'})\n"
)
# As `neve serve --supervised` does: it ends when standard input does.
FOLLOW = "sys.stdin.read()\n"


def supervisor(code):
    return Supervisor("stand-in", [sys.executable, "-c", code], {}, QUICK)


def start(child):
    child.launch()
    child.wait_until_tried()


@pytest.fixture
def running():
    child = supervisor(READY + FOLLOW)
    start(child)
    yield child
    child.stop()


def test_a_child_is_up_when_it_says_so_and_down_when_it_is_stopped(running):
    assert running.is_up
    assert running.announced == {"http": "here", "run": 0}
    running.stop()
    assert not running.is_up
    assert running.pid is None
    assert running.restarts == 0


@pytest.mark.parametrize("stray", ["hello", "7"])
def test_what_a_library_prints_is_no_announcement(stray, capfd):
    child = supervisor(f"print({stray!r}, flush=True)\n{READY}{FOLLOW}")
    start(child)
    assert child.announced == {"http": "here", "run": 0}
    child.stop()
    assert capfd.readouterr() == ("", f"{stray}\n")


def test_what_a_child_leaves_behind_does_not_keep_it_from_being_started_again(tmp_path):
    """A process that an agent has forked has the pipe, and never ends."""
    pids = tmp_path / "pids"
    child = supervisor(
        f"import os, signal, sys\nwith open({str(pids)!r}, 'a') as file:\n"
        "    pid = os.fork()\n    if not pid:\n        signal.pause()\n"
        "    print(pid, file=file)\nsys.exit(1)"
    )
    try:
        child.launch()
        until(lambda: child.restarts > 1)
        child.stop()
    finally:
        for pid in pids.read_text().split():
            os.kill(int(pid), signal.SIGKILL)


def test_a_child_that_was_killed_is_started_again(running):
    first = running.pid
    os.kill(first, signal.SIGKILL)
    until(lambda: running.is_up and running.pid not in (None, first))
    assert running.restarts == 1
    assert running.announced["run"] == 1


def test_a_child_that_ends_at_once_is_tried_again_and_again():
    child = supervisor("raise SystemExit(1)")
    start(child)
    assert not child.is_up
    until(lambda: child.restarts >= 3)
    child.stop()


def test_a_configuration_that_is_refused_at_the_start_is_an_error():
    child = supervisor("raise SystemExit(2)")
    with pytest.raises(ConfigError, match="the stand-in cannot start"):
        start(child)
    child.stop()
    assert child.restarts == 0


def test_later_the_same_status_is_survived(tmp_path):
    # Once it ran, a refusal may pass: a port that is taken for a moment.
    seen = tmp_path / "seen"
    code = f"import pathlib; p = pathlib.Path({str(seen)!r})\n"
    code += f"if p.exists(): raise SystemExit(2)\np.touch()\n{READY}"
    child = supervisor(code)
    start(child)
    until(lambda: child.restarts >= 2)
    child.stop()


def test_a_child_that_does_not_end_when_asked_is_killed():
    deaf = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + READY
    backoff = Backoff(grace_seconds=0.05)
    child = Supervisor("deaf", [sys.executable, "-c", deaf + "signal.pause()"], {}, backoff)
    start(child)
    pid = child.pid
    child.stop()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_stopping_before_the_start_and_twice_is_no_error():
    child = supervisor(READY + FOLLOW)
    child.stop()
    start(child)
    assert not child.is_up
    child.stop()


def test_a_child_is_told_to_read_its_configuration_again(tmp_path):
    told = tmp_path / "told"
    handle = (
        f"import pathlib, signal\nsignal.signal(signal.SIGHUP, "
        f"lambda *_: pathlib.Path({str(told)!r}).touch())\n"
    )
    child = supervisor(handle + READY + FOLLOW)
    child.reload()
    start(child)
    try:
        child.reload()
        until(told.exists)
        assert child.restarts == 0
    finally:
        child.stop()
    child.reload()
