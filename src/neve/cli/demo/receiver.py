"""`neve serve` as a process of its own, on ports that are free."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

from neve.errors import SetupError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_LISTENING = re.compile(r"OTLP/HTTP on (?P<http>\S+), OTLP/gRPC on (?P<grpc>\S+),")
_SECTION = "NEVE_RECEIVE__"
_STOP_SECONDS = 30


class ReceiverProcess:
    """A receiver that listens."""

    def __init__(self, child: subprocess.Popen[str], http: str) -> None:
        self._child = child
        self.http = http

    def kill(self) -> None:
        """End it as a power cut would: SIGKILL."""
        self._child.kill()
        self._child.wait()

    def stop(self) -> int:
        """End it as an operator would: SIGTERM. Returns its exit status."""
        self._child.terminate()
        return self._child.wait(_STOP_SECONDS)


@contextmanager
def running_receiver(config: Path, http: str = "127.0.0.1:0") -> Iterator[ReceiverProcess]:
    """Run a receiver until the block ends, at the latest.

    Raises:
        SetupError: it does not start.
    """
    # What the environment says of a receiver is not meant for this one.
    others = {name: os.environ[name] for name in os.environ if not name.startswith(_SECTION)}
    child = subprocess.Popen(
        [sys.executable, "-m", "neve", "-c", str(config), "serve"],
        env={**others, f"{_SECTION}HTTP": http, f"{_SECTION}GRPC": "127.0.0.1:0"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield ReceiverProcess(child, _await_address(child))
    finally:
        child.kill()
        child.communicate()


def _await_address(child: subprocess.Popen[str]) -> str:
    """Return the address of OTLP/HTTP, which the receiver prints once it listens."""
    said = []
    for line in child.stderr or ():
        if found := _LISTENING.search(line):
            return found["http"]
        said.append(line.strip())
    raise SetupError(f"the receiver did not start: {' '.join(said).removeprefix('neve: ')}")
