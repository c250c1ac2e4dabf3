"""A `neve` for terminals that works inside this process, where Spark runs already.

Pages are followed in a real shell. Its `neve` is a small program that sends what was typed to this
process, which does it and sends back what is printed. Each start of Spark takes many seconds.
"""

from __future__ import annotations

import io
import json
import os
import socket
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from unittest.mock import patch

from neve.cli.app import run

if TYPE_CHECKING:
    from collections.abc import Iterator

_CLIENT = """#!{python} -IS
import json, os, socket, sys
with socket.socket(socket.AF_UNIX) as connection:
    connection.connect({address!r})
    typed = {{"arguments": sys.argv[1:], "directory": os.getcwd(), "input": sys.stdin.read()}}
    connection.sendall(json.dumps(typed).encode())
    connection.shutdown(socket.SHUT_WR)
    with connection.makefile("rb") as answer:
        answer = json.load(answer)
sys.stdout.write(answer["output"])
sys.stdout.flush()
sys.stderr.write(answer["error"])
sys.exit(answer["status"])
"""
_POLL_SECONDS = 0.05


class WarmCommand:
    """Runs shell commands, and each `neve` among them in this process."""

    def __init__(self, directory: Path) -> None:
        self._address = str(directory / "socket")
        self.path = directory / "bin"
        self.path.mkdir()
        client = self.path / "neve"
        client.write_text(_CLIENT.format(python=sys.executable, address=self._address))
        client.chmod(0o755)

    def run(
        self, command: list[str], directory: Path, environment: dict[str, str], seconds: float
    ) -> subprocess.CompletedProcess[str]:
        """Run a command to its end."""
        environment = {**environment, "PATH": f"{self.path}:{environment['PATH']}"}
        Path(self._address).unlink(missing_ok=True)
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(self._address)
            server.listen()
            server.settimeout(_POLL_SECONDS)
            with subprocess.Popen(
                command,
                cwd=directory,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            ) as process:
                while process.poll() is None:
                    try:
                        connection, _ = server.accept()
                    except TimeoutError:
                        continue
                    with connection:
                        connection.settimeout(seconds)
                        _answer(connection)
                output, error = process.communicate()
                return subprocess.CompletedProcess(command, process.returncode, output, error)


def _answer(connection: socket.socket) -> None:
    with connection.makefile("rb") as request:
        typed = json.load(request)
    with _terminal(typed["directory"], typed["input"]) as (output, error):
        status = run(typed["arguments"])
    answer = {"status": status, "output": _text(output), "error": _text(error)}
    connection.sendall(json.dumps(answer).encode())


@contextmanager
def _terminal(directory: str, typed: str) -> Iterator[tuple[io.TextIOWrapper, io.TextIOWrapper]]:
    output, error, given = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8") for _ in range(3))
    given.write(typed)
    given.seek(0)
    before = Path.cwd()
    os.chdir(directory)
    try:
        with (
            patch.object(sys, "stdout", output),
            patch.object(sys, "stderr", error),
            patch.object(sys, "stdin", given),
        ):
            yield output, error
    finally:
        os.chdir(before)


def _text(stream: io.TextIOWrapper) -> str:
    stream.flush()
    stream.seek(0)
    return stream.read()
