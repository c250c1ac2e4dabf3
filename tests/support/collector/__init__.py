"""A real OpenTelemetry Collector, built by `tests.support.install`."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import yaml

from tests.support.install import COLLECTOR
from tests.support.process import Process, accepts_connections, free_port

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@contextmanager
def running_collector(directory: Path, config: dict[str, Any], **environment: str) -> Iterator[int]:
    """Run a Collector of which all but its own addresses is given; yield its OTLP/HTTP port."""
    port = free_port()
    config = {
        **config,
        "receivers": {"otlp": {"protocols": {"http": {"endpoint": f"127.0.0.1:{port}"}}}},
    }
    # Its own metrics would take a port that somebody else may want.
    config["service"] = {**config["service"], "telemetry": {"metrics": {"level": "none"}}}
    path = directory / "collector.yaml"
    path.write_text(yaml.safe_dump(config))
    log = directory / "collector.log"
    command = [COLLECTOR.directory / "otelcol", "--config", path]
    process = Process("Collector", command, log, environment=environment)
    process.wait_until(lambda: accepts_connections(port))
    try:
        yield port
    finally:
        process.stop()
