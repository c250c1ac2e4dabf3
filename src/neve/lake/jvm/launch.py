"""Launch the JVM so that Ctrl-C ends both processes, and quickly."""

from __future__ import annotations

import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from pyspark import SparkConf, java_gateway


def launch_jvm(conf: SparkConf, output: dict[str, Any]) -> Any:
    """Start a JVM and return PySpark's gateway to it.

    An interrupt must not end `launch_gateway` by itself: that would remove the directory in which
    the JVM announces itself. The JVM's main thread then fails before it waits for this process to
    end, and its others keep it alive for ever. And in the child, before it is the JVM, an
    interrupt would be reported as a launch that failed. So an interrupt ends the JVM, and with it
    the launch. Handlers of a service's own are called when the JVM runs.
    """
    if threading.current_thread() is not threading.main_thread():
        return java_gateway.launch_gateway(conf, output)
    interrupts: list[int] = []
    processes: list[subprocess.Popen[bytes]] = []
    before = signal.getsignal(signal.SIGINT)
    may_end = before is signal.default_int_handler

    def end_if_interrupted() -> None:
        if interrupts and may_end:
            for process in processes:
                process.terminate()

    def interrupt(number: int, _: FrameType | None) -> None:
        interrupts.append(number)
        end_if_interrupted()

    class Child(subprocess.Popen[bytes]):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            processes.append(self)
            end_if_interrupted()

    signal.signal(signal.SIGINT, interrupt)
    try:
        with _children_are(Child):
            return java_gateway.launch_gateway(conf, output)
    finally:
        signal.signal(signal.SIGINT, before)
        if interrupts:
            # In place of the error that says the JVM ended, if one is on its way.
            signal.raise_signal(signal.SIGINT)


@contextmanager
def _children_are(kind: type[subprocess.Popen[bytes]]) -> Iterator[None]:
    """Have PySpark start its JVM by a class of ours: it tells nobody the process while it waits."""
    module: Any = java_gateway
    before, module.Popen = module.Popen, kind
    try:
        yield
    finally:
        module.Popen = before


@contextmanager
def interrupt_handler_kept() -> Iterator[None]:
    """Undo PySpark's handler of Ctrl-C.

    It calls into Java from within whatever call was interrupted, over the same connection, which
    ends in a stack trace about a re-entrant call instead of a KeyboardInterrupt.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
