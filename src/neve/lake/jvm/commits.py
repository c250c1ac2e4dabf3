"""One snapshot of rows and deletion vectors, which Iceberg has no SQL for.

Java reads and writes no file of a store: it is given the table's metadata and manifests, and gives
back what it would have written. So whoever commits decides which requests are made, and at once.
"""

from __future__ import annotations

import base64
import json
import re
import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from neve.lake.jvm.byte_streams import read_stream
from neve.lake.jvm.content_file_loop import ContentFileLoop
from neve.lake.jvm.java_classes import java_class

_IN_MEMORY = "org.apache.iceberg.inmemory.InMemoryFileIO"
_CATALOG = "org.apache.iceberg.inmemory.InMemoryCatalog"
_IDENTIFIER = "org.apache.iceberg.catalog.TableIdentifier"
_SNAPSHOT_PARSER = "org.apache.iceberg.SnapshotParser"
_PRODUCER = "org.apache.iceberg.SnapshotProducer"
_EXECUTORS = "org.apache.iceberg.relocated.com.google.common.util.concurrent.MoreExecutors"
_NAME = "neve.table"
_NUMBER = re.compile(r"(?P<begin>.*-m)(?P<number>\d+)(?P<end>\.avro)")
# Java has one map of files in memory for all of the process, and merges run side by side.
_in_use: Counter[str] = Counter()
_lock = threading.Lock()


@dataclass(frozen=True)
class ChangedFiles:
    """What a snapshot adds and removes, as the JSON of `content_files.py`."""

    data_files: str
    vectors: str
    replaced: str
    emptied: str


@dataclass(frozen=True)
class MadeSnapshot:
    """A snapshot that no table has yet: its JSON, and how many vectors and data files go."""

    document: dict[str, Any]
    manifest_list: bytes
    vectors_gone: int
    files_gone: int


class RowDelta:
    """A table that exists in Java's memory only. Everything raises what Java raises."""

    def __init__(self, session: SparkSession, metadata_location: str) -> None:
        gateway: Any = session.sparkContext._gateway
        self._gateway = gateway
        self._io = java_class(gateway, _IN_MEMORY)()
        catalog = java_class(gateway, _CATALOG)()
        catalog.initialize("neve", java_class(gateway, "java.util.HashMap")())
        name = java_class(gateway, _IDENTIFIER).parse(_NAME)
        catalog.createNamespace(name.namespace())
        self._table = catalog.registerTable(name, metadata_location)

    def make_snapshot(
        self, base_id: int | None, files: ChangedFiles, summary: Mapping[str, str]
    ) -> MadeSnapshot:
        """Make the manifests of a snapshot; `read` returns them."""
        transaction = self._table.newTransaction()
        delta = transaction.newRowDelta()
        # Iceberg waits for its threads in steps of ten milliseconds, and everything is in memory.
        executors = java_class(self._gateway, _EXECUTORS)
        delta.scanManifestsWith(executors.newDirectExecutorService())
        loop = ContentFileLoop(self._gateway, delta, self._table.specs())
        loop.add_rows(files.data_files)
        loop.add_deletes(files.vectors)
        loop.remove_deletes(files.replaced)
        loop.remove_rows(files.emptied)
        for key, value in summary.items():
            delta.set(key, value)
        if base_id is not None:
            # Else vectors are compared with those of the whole history.
            delta.validateFromSnapshot(base_id)
        try:
            delta.commit()
        except Py4JError:
            self._forget_failed(delta)
            raise
        snapshot = transaction.table().currentSnapshot()
        document = json.loads(java_class(self._gateway, _SNAPSHOT_PARSER).toJson(snapshot))
        counted = document["summary"]
        return MadeSnapshot(
            document,
            self.read(document["manifest-list"]),
            int(counted.get("removed-dvs") or 0),
            int(counted.get("deleted-data-files") or 0),
        )

    def read(self, path: str) -> bytes:
        """Return a file that was made."""
        return read_stream(self._gateway, self._io.newInputFile(path).newStream())

    def forget(self, manifest_list: str, manifests: Sequence[str]) -> None:
        """Give up what was made, also manifests that were merged into one of those named."""
        for path in (manifest_list, *manifests):
            self._io.deleteFile(path)
        named = [_NUMBER.fullmatch(path) for path in manifests]
        numbers = {int(match["number"]): match for match in named if match}
        for number in set(range(max(numbers, default=0))).difference(numbers):
            match = next(iter(numbers.values()))
            path = f"{match['begin']}{number}{match['end']}"
            if self._io.fileExists(path):
                self._io.deleteFile(path)

    def _forget_failed(self, delta: Any) -> None:
        """Give up manifests of a commit that failed. Iceberg only notes that they are to go."""
        with suppress(Py4JError):
            producer = delta.getClass().getClassLoader().loadClass(_PRODUCER)
            commit_id = _private(producer, "commitUUID", delta)
            locate = self._table.operations().metadataFileLocation
            for number in range(int(_private(producer, "manifestCount", delta))):
                path = locate(f"{commit_id}-m{number}.avro")
                if self._io.fileExists(path):
                    self._io.deleteFile(path)


def _private(kind: Any, name: str, java_object: Any) -> Any:
    field = kind.getDeclaredField(name)
    field.setAccessible(True)
    return field.get(java_object)


@contextmanager
def held_in_memory(session: SparkSession, files: Mapping[str, bytes]) -> Iterator[None]:
    """Let Java find files in its memory, in one call for all of them."""
    gateway: Any = session.sparkContext._gateway
    io = java_class(gateway, _IN_MEMORY)()
    with _lock:
        _in_use.update(files.keys())
    try:
        _add_files(gateway, io, files)
        yield
    finally:
        with _lock:
            _in_use.subtract(files.keys())
            unused = [path for path in files if not _in_use[path]]
            for path in unused:
                del _in_use[path]
            _remove_files(gateway, io, unused)


def _remove_files(gateway: Any, io: Any, paths: Sequence[str]) -> None:
    """Do `files.keySet().removeAll(paths)`: Java has no method that deletes several at once."""
    mapper = java_class(gateway, "org.apache.iceberg.util.JsonUtil").mapper()
    set_class = java_class(gateway, "java.lang.Class").forName("java.util.HashSet")
    doomed = mapper.readValue(json.dumps(list(paths)), set_class)
    _private(io.getClass(), "IN_MEMORY_FILES", None).keySet().removeAll(doomed)


def _add_files(gateway: Any, io: Any, files: Mapping[str, bytes]) -> None:
    """Do `files.forEach(io::addFile)` in Java, where the loop over them costs nothing."""
    load_class = io.getClass().getClassLoader().loadClass
    mapper = java_class(gateway, "org.apache.iceberg.util.JsonUtil").mapper()
    of_class = java_class(gateway, "java.lang.Class")
    byte_array = of_class.forName("[B")
    map_of_files = mapper.getTypeFactory().constructMapType(
        load_class("java.util.HashMap"), load_class("java.lang.String"), byte_array
    )
    document = {path: base64.b64encode(data).decode() for path, data in files.items()}
    contents = mapper.readValue(json.dumps(document), map_of_files)
    no_result = java_class(gateway, "java.lang.Void").TYPE
    parameters = gateway.new_array(of_class, 1)
    parameters[0] = byte_array
    add_file = (
        java_class(gateway, "java.lang.invoke.MethodHandles")
        .publicLookup()
        .findVirtual(
            load_class(_IN_MEMORY),
            "addFile",
            java_class(gateway, "java.lang.invoke.MethodType").methodType(
                no_result, load_class("java.lang.String"), parameters
            ),
        )
        .bindTo(io)
    )
    consumer = java_class(gateway, "java.lang.invoke.MethodHandleProxies").asInterfaceInstance(
        load_class("java.util.function.BiConsumer"), add_file
    )
    contents.forEach(consumer)
