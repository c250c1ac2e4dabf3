"""An S3 server in a process of its own."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import urllib.request
from typing import TYPE_CHECKING

from tests.support.wait import until

from neve.buffer.spec import ObjectStorage

if TYPE_CHECKING:
    from collections.abc import Iterator


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextlib.contextmanager
def moto() -> Iterator[ObjectStorage]:
    """Run moto with an empty bucket named `bucket`."""
    port = free_port()
    endpoint = f"http://127.0.0.1:{port}"
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        until(lambda: _answers(endpoint), seconds=30)
        request = urllib.request.Request(f"{endpoint}/bucket", method="PUT")
        urllib.request.urlopen(request).close()
        yield ObjectStorage(
            endpoint=endpoint, region="us-east-1", access_key_id="k", secret_access_key="s"
        )
    finally:
        server.terminate()
        server.wait()


def _answers(endpoint: str) -> bool:
    try:
        urllib.request.urlopen(endpoint).close()
    except OSError:
        return False
    return True
