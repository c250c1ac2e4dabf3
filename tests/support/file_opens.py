"""Counts how often files are opened, by whichever process: the kernel tells (inotify)."""

from __future__ import annotations

import ctypes
import os
import select
import struct
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_IN_OPEN = 0x20
_IN_IGNORED = 0x8000
_IN_Q_OVERFLOW = 0x4000
_HEADER = struct.Struct("iIII")


@contextmanager
def counted_opens(*directories: Path) -> Iterator[Counter[str]]:
    """Yield how often each file was opened that lies in one of the directories, by its name.

    The numbers are complete after the block. Directories that are made meanwhile are not watched.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    watch = libc.inotify_init1(os.O_NONBLOCK)
    for directory in directories:
        if libc.inotify_add_watch(watch, os.fsencode(directory), _IN_OPEN) < 0:
            raise OSError(ctypes.get_errno(), f"{directory} cannot be watched")
    opens: Counter[str] = Counter()
    stop = threading.Event()
    reader = threading.Thread(target=_count, args=(watch, opens, stop))
    reader.start()
    try:
        yield opens
    finally:
        stop.set()
        reader.join()
        os.close(watch)


def _count(watch: int, opens: Counter[str], stop: threading.Event) -> None:
    """Read events, since the kernel keeps a limited number; once more after the end."""
    while True:
        is_last = stop.is_set()
        while select.select([watch], [], [], 0 if is_last else 0.05)[0]:
            _add(os.read(watch, 1 << 20), opens)
        if is_last:
            return


def _add(events: bytes, opens: Counter[str]) -> None:
    at = 0
    while at < len(events):
        _, mask, _, length = _HEADER.unpack_from(events, at)
        at += _HEADER.size
        name = events[at : at + length].rstrip(b"\0").decode()
        at += length
        if mask & _IN_Q_OVERFLOW:
            raise OverflowError("the kernel has dropped events")
        if name and not mask & _IN_IGNORED:
            opens[name] += 1
