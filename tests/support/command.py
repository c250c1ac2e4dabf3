"""The installed command: a process that ends, and `neve serve`, which clients can talk to."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from neve import failpoints
from tests.support.process import Process
from tests.support.servers import SHORT_LIVED_JAVA

if TYPE_CHECKING:
    from collections.abc import Iterator

NEVE = str(Path(sys.executable).with_name("neve"))
_DEADLINE_SECONDS = 180
_LISTENING = re.compile(r"OTLP/HTTP on (\S+), OTLP/gRPC on (\S+), buffer (.+)$", re.MULTILINE)


def neve_merge(
    config: Path, *options: str, failpoint: str = ""
) -> subprocess.CompletedProcess[str]:
    """Run `neve merge --once`, which dies at `failpoint` if it is given one."""
    return subprocess.run(
        [NEVE, "--config", config, "--json", "merge", "--once", *options],
        env={**os.environ, **SHORT_LIVED_JAVA, failpoints.ENVIRONMENT_VARIABLE: failpoint},
        capture_output=True,
        text=True,
        check=False,
        timeout=_DEADLINE_SECONDS,
    )


@dataclass(frozen=True)
class Serving:
    """A `neve serve` that listens."""

    process: Process
    config: Path
    http: str
    grpc: str
    buffer: Path


@contextmanager
def neve_serve(
    directory: Path,
    configuration: dict[str, Any] | None = None,
    *,
    at: Serving | None = None,
    descriptors: int | None = None,
    **environment: str,
) -> Iterator[Serving]:
    """Run `neve serve` in a directory until the block ends.

    Args:
        configuration: what neve.yaml says, besides free ports and segments sealed at once.
        at: an earlier one, whose addresses it takes over.
        descriptors: how many the system lets it open, if not as many as us.
    """
    settings = {"receive": {}, "buffer": {"seal_seconds": 0.05}, **(configuration or {})}
    settings["receive"] |= {
        "http": at.http if at else "127.0.0.1:0",
        "grpc": at.grpc if at else "127.0.0.1:0",
    }
    config, log = directory / "neve.yaml", directory / "serve.log"
    config.write_text(yaml.safe_dump(settings))
    log.write_text("")
    command = [NEVE, "-c", config, "serve"]
    if descriptors is not None:
        command = ["bash", "-c", 'ulimit -n "$0" && exec "$@"', str(descriptors), *command]
    process = Process("neve serve", command, log, environment=environment)
    try:
        process.wait_until(lambda: bool(_LISTENING.search(log.read_text())))
        http, grpc, buffer = _LISTENING.search(log.read_text()).groups()
        yield Serving(process, config, http, grpc, Path(buffer))
    finally:
        process.kill()
