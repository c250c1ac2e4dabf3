"""A receiver in a process of its own."""

from __future__ import annotations

import contextlib
import dataclasses
import http.client
import json
import os
import signal
import subprocess
import sys
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import grpc

from neve import failpoints
from neve.signals import Signal

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


@dataclass
class Running:
    """A receiver that listens."""

    process: subprocess.Popen[str]
    http: int
    grpc: int
    errors: list[str] = field(repr=False)

    def post(
        self, path: str, body: bytes, headers: Mapping[str, str] | None = None
    ) -> tuple[int, Mapping[str, str], bytes]:
        """Send one request on a connection of its own."""
        sent = {"content-type": "application/x-protobuf", **(headers or {})}
        return self.request("POST", path, body, sent)

    def request(
        self, method: str, path: str, body: bytes = b"", headers: Mapping[str, str] | None = None
    ) -> tuple[int, Mapping[str, str], bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.http, timeout=30)
        with contextlib.closing(connection):
            connection.request(method, path, body, dict(headers or {}))
            response = connection.getresponse()
            lowered = {name.lower(): value for name, value in response.getheaders()}
            return response.status, lowered, response.read()

    def stop(self) -> int:
        """Stop it as an operator would, and return its exit status."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(30)


@contextlib.contextmanager
def receiver(
    location: object,
    *,
    failpoint: str = "",
    buffer: Mapping[str, Any] | None = None,
    **receive: Any,
) -> Iterator[Running]:
    """Run a receiver on free ports until the block ends."""
    if dataclasses.is_dataclass(receive.get("tls")):
        receive["tls"] = dataclasses.asdict(receive["tls"])
    receive = {"http": "127.0.0.1:0", "grpc": "127.0.0.1:0", **receive}
    options = {"receive": receive, "buffer": {"location": str(location), **(buffer or {})}}
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.support.serve", json.dumps(options)],
        env={**os.environ, failpoints.ENVIRONMENT_VARIABLE: failpoint},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    errors: list[str] = []
    drain = threading.Thread(target=lambda: errors.extend(process.stderr), daemon=True)
    drain.start()
    try:
        line = process.stdout.readline()
        if not line:
            process.wait()
            drain.join(5)
            raise AssertionError("the receiver did not start:\n" + "".join(errors))
        yield Running(process, **json.loads(line), errors=errors)
    finally:
        process.kill()
        process.wait()
        drain.join(5)
        process.stdout.close()
        process.stderr.close()


def export(port: int, body: bytes, *, signal: Signal = Signal.LOGS, credentials=None, **call: Any):
    """Send a request over gRPC, which must be acknowledged; return the answer."""
    target = f"localhost:{port}" if credentials else f"127.0.0.1:{port}"
    channel = (
        grpc.secure_channel(target, credentials) if credentials else grpc.insecure_channel(target)
    )
    with channel:
        answer = channel.unary_unary(signal.grpc_method)(body, timeout=30, **call)
    return signal.response.FromString(answer)


def raw_request(body: bytes, extra: bytes = b"") -> bytes:
    """Write a request of logs as it is sent over HTTP."""
    return (
        b"POST /v1/logs HTTP/1.1\r\nHost: h\r\nContent-Type: application/x-protobuf\r\n%b"
        b"Content-Length: %d\r\n\r\n" % (extra, len(body))
    ) + body
