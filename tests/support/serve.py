"""A receiver as a process: python -m tests.support.serve SPECS_AS_JSON prints its ports."""

from __future__ import annotations

import json
import logging
import sys

from neve.buffer.disk_log import DiskLog
from neve.buffer.spec import BufferSpec, ObjectStorage
from neve.receive.server import Receiver, serve
from neve.receive.spec import ReceiveSpec, TlsSpec, TokenSpec


def announce(receiver: Receiver) -> None:
    ports = {"http": receiver.http_address.port, "grpc": receiver.grpc_address.port}
    print(json.dumps(ports), flush=True)  # noqa: T201


def _fail(*_: object) -> None:
    raise RuntimeError("a defect of the buffer")


def main() -> None:
    logging.basicConfig(level=logging.INFO, stream=sys.stderr)
    options = json.loads(sys.argv[1])
    receive, buffer = options["receive"], options["buffer"]
    if buffer.pop("has_defect", False):
        DiskLog.commit = _fail
    tls = receive.pop("tls", None)
    tokens = tuple(TokenSpec(**token) for token in receive.pop("tokens", ()))
    storage = ObjectStorage(**(buffer.pop("storage", None) or {}))
    serve(
        ReceiveSpec(**receive, tokens=tokens, tls=TlsSpec(**tls) if tls else None),
        BufferSpec(**buffer, storage=storage),
        on_ready=announce,
    )


if __name__ == "__main__":
    main()
