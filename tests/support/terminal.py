"""The installed command on a pseudo-terminal with a size, as a person sees and types it."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tests.support.command import NEVE

if TYPE_CHECKING:
    from typing_extensions import Self

CTRL_C = "\x03"
CTRL_D = "\x04"
_DEADLINE_SECONDS = 180
# What moves the cursor, colours text or names the window: CSI, OSC and the two-byte sequences.
_SEQUENCES = re.compile(r"\x1b(\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(\x07|\x1b\\)|[@-Z\\^_=>78])")


@dataclass(frozen=True)
class Screen:
    """What a command wrote to its terminal, standard output and error together.

    Args:
        text: without the terminal's control sequences; lines end with a newline.
        raw: every character as it came.
        status: the exit status; minus a signal's number if that ended it.
    """

    text: str
    raw: str
    status: int
    seconds: float

    @property
    def lines(self) -> list[str]:
        return self.text.splitlines()


class Terminal:
    """A running command and the terminal it writes to; the command is killed with the block."""

    def __init__(
        self,
        arguments: Sequence[str | Path],
        columns: int = 120,
        rows: int = 40,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        program: str | Path = NEVE,
    ) -> None:
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        clean = {
            name: value
            for name, value in os.environ.items()
            if name not in ("NEVE_CONFIG", "COLUMNS", "LINES", "NO_COLOR")
        }
        self._written = b""
        self._fd = ours
        self._started = time.monotonic()
        self.process = subprocess.Popen(
            [str(program), *map(str, arguments)],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            cwd=cwd,
            env={**clean, "TERM": "xterm-256color", **(env or {})},
            start_new_session=True,
            preexec_fn=_take_terminal,  # noqa: PLW1509 - the child gets the terminal it reads from
        )
        os.close(theirs)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if is_running(self.process.pid):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        os.close(self._fd)

    @property
    def raw(self) -> str:
        return self._written.decode(errors="replace")

    @property
    def text(self) -> str:
        return _SEQUENCES.sub("", self.raw).replace("\r\n", "\n").replace("\r", "\n")

    def type(self, keys: str) -> None:
        """Type on the keyboard; `CTRL_C` interrupts, as the terminal does."""
        os.write(self._fd, keys.encode())

    def wait_for(
        self, said: str, *, after: str = "", since: int = 0, seconds: float = _DEADLINE_SECONDS
    ) -> None:
        """Return once the screen has shown a text, later than another one.

        Args:
            since: look only at what the screen has shown after so many characters.
        """
        deadline = time.monotonic() + seconds
        while said not in (shown := self.text[since:]) or said not in _behind(shown, after):
            left = deadline - time.monotonic()
            if left <= 0 or not self._read(left):
                raise AssertionError(f"{said!r} is not on the screen:\n{self.text}")

    def finish(self, seconds: float = _DEADLINE_SECONDS) -> Screen:
        """Read until the command ends."""
        deadline = time.monotonic() + seconds
        # What the command started, such as a JVM, may keep the terminal open after its end.
        while self.process.poll() is None:
            if time.monotonic() > deadline:
                raise AssertionError(f"not at its end within {seconds} s:\n{self.text}")
            self._read(0.02)
        ended = time.monotonic()
        while self._read(0):
            pass
        return Screen(self.text, self.raw, self.process.returncode, ended - self._started)

    def _read(self, seconds: float) -> bool:
        """Take what was written; say whether more may come."""
        if not select.select([self._fd], [], [], seconds)[0]:
            return False
        try:
            written = os.read(self._fd, 65536)
        except OSError:  # EIO: nobody holds the other end any more
            written = b""
        self._written += written
        return bool(written)


def _behind(text: str, before: str) -> str:
    return text.partition(before)[2] if before else text


def run_in_terminal(
    arguments: Sequence[str | Path],
    columns: int = 120,
    rows: int = 40,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    send: Sequence[tuple[str, str]] = (),
    program: str | Path = NEVE,
) -> Screen:
    """Run `neve` with these arguments until it ends.

    Args:
        send: what to type and when: `(text to wait for, keys)`, one after the other.
    """
    with Terminal(arguments, columns, rows, cwd, env, program) as terminal:
        for said, keys in send:
            terminal.wait_for(said)
            terminal.type(keys)
        return terminal.finish()


def is_running(group: int) -> bool:
    """Say whether a process of a group is left, such as a JVM."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def _take_terminal() -> None:
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    # A shell without job control makes its background jobs, and what they start, ignore Ctrl-C.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
