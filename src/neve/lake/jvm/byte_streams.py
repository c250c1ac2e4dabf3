"""Bytes from Java through a file, and not through the socket that calls go through.

py4j sends an answer in pieces of 8 KiB. Its socket sends the second piece only after the first one
was acknowledged (Nagle's algorithm), and the reader delays that: each larger answer takes 40 ms or
more. Java and Python are always on one machine.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from neve.lake.jvm.java_classes import java_class

_BYTE_STREAMS = "org.apache.iceberg.relocated.com.google.common.io.ByteStreams"


def read_stream(gateway: Any, stream: Any, length: int | None = None) -> bytes:
    """Return what an `InputStream` still has, or its next bytes, and close it."""
    try:
        source = stream
        if length is not None:
            source = java_class(gateway, _BYTE_STREAMS).limit(stream, length)
        # Readable by its owner alone.
        with tempfile.NamedTemporaryFile(prefix="neve-") as file:
            out = java_class(gateway, "java.io.FileOutputStream")(file.name)
            try:
                source.transferTo(out)
            finally:
                out.close()
            return file.read()
    finally:
        stream.close()


def metadata_json(gateway: Any, metadata: Any) -> bytes:
    """Return a `TableMetadata` as JSON."""
    with tempfile.TemporaryDirectory(prefix="neve-") as directory:
        path = Path(directory, "v1.metadata.json")
        output = java_class(gateway, "org.apache.iceberg.Files").localOutput(str(path))
        java_class(gateway, "org.apache.iceberg.TableMetadataParser").overwrite(metadata, output)
        return path.read_bytes()
