"""A process that appends what it is told, one request a line, and says what is acknowledged.

python -m tests.support.appender SPEC_AS_JSON, with NEVE_FAILPOINT in the environment to die at.
"""

from __future__ import annotations

import json
import sys

from neve.buffer.buffer import open_buffer
from neve.buffer.spec import BufferSpec, ObjectStorage
from tests.support.requests import buffered


def main() -> None:
    options = json.loads(sys.argv[1])
    storage = ObjectStorage(**options.pop("storage"))
    with open_buffer(BufferSpec(**options, storage=storage), ["logs"]) as buffer:
        for line in sys.stdin:
            content = line.strip().encode()
            receipt = buffer.append("logs", buffered(content))
            receipt.durable.result(30)
            print(content.decode(), flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
