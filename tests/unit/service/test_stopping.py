"""The first signal asks, the second ends the process, and so does time."""

import os
import signal
import subprocess
import sys

import pytest

from neve.service.stopping import STOP_SIGNALS, stopping_on_signals

INSIST = """
import os, signal
from neve.service.stopping import stopping_on_signals
with stopping_on_signals() as stop:
    os.kill(os.getpid(), signal.SIGTERM)
    assert stop.wait(10)
    os.kill(os.getpid(), signal.SIGINT)
    signal.pause()
"""

INSIST_ON_A_RECEIVER = """
import signal
from neve.service.stopping import answer_signals
answer = answer_signals()
answer(signal.SIGTERM)
answer(signal.SIGINT)
signal.pause()
"""

HANG = """
import os, signal, threading
from neve.service.stopping import stopping_on_signals
with stopping_on_signals(stop_seconds=0.1):
    os.kill(os.getpid(), signal.SIGTERM)
    threading.Event().wait()
"""


@pytest.mark.parametrize("number", STOP_SIGNALS)
def test_a_signal_sets_the_event_and_handlers_are_put_back(number):
    before = signal.getsignal(number)
    with stopping_on_signals() as stop:
        assert not stop.is_set()
        os.kill(os.getpid(), number)
        assert stop.wait(10)
    assert signal.getsignal(number) is before


@pytest.mark.parametrize("program", [INSIST, INSIST_ON_A_RECEIVER])
def test_a_second_signal_ends_the_process_at_once(program):
    ended = subprocess.run([sys.executable, "-c", program], timeout=30, check=False)
    assert ended.returncode == 130


def test_what_hangs_after_a_signal_is_ended():
    assert subprocess.run([sys.executable, "-c", HANG], timeout=30, check=False).returncode == 143
