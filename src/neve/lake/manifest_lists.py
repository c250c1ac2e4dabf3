"""Manifest lists of which an append decodes and writes the first few lines only.

A list begins with the manifests that a later append may merge, in one block: there are some dozens
of them at most. The blocks behind it name the *settled* manifests, which appends keep as they are,
however many a table has. They are copied byte for byte, under the same sync marker. An entry of the
file's header says how many manifests are settled. A list without this entry, such as Spark writes,
is decoded as a whole. https://avro.apache.org/docs/1.12.0/specification/#object-container-files
"""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from pyiceberg.io import FileIO, InputFile, OutputFile
from pyiceberg.manifest import ManifestFile, ManifestListWriter, read_manifest_list

from neve.lake.avro_blocks import block_bytes, locate_blocks, read_blocks
from neve.lake.avro_files import AvroHeader, AvroRecords, damage_named, read_header

# In the header of a list: how many of its last lines are of settled manifests.
SETTLED = "neve.settled-manifests"
# Iceberg's id and name of the field with a manifest's place.
_PATH_ID, _PATH = 500, "manifest_path"
# Settled manifests are added to the last block as long as that has fewer bytes, uncompressed.
_BLOCK_BYTES = 64_000


@dataclass(frozen=True)
class Settled:
    """The end of a list: manifests that appends keep as they are.

    Args:
        count: of manifests.
        blocks: as they lie in the file.
        header: of the file.
        path: of the file.
    """

    count: int
    blocks: bytes
    header: AvroHeader
    path: str

    def has_format_of(self, header: AvroHeader) -> bool:
        """Tell whether these blocks can be copied into a file that has such a header."""
        return (self.header.schema, self.header.codec) == (header.schema, header.codec)

    def manifests(self) -> list[ManifestFile]:
        """Decode all of them."""
        return _decode(self.header, self.blocks)

    def add(self, count: int, records: bytes) -> Settled:
        """Return the same with more manifests, given as encoded records."""
        codec, sync = self.header.codec, self.header.sync
        begin, last_count, last = len(self.blocks), 0, b""
        located = list(locate_blocks(self.blocks))
        if located:
            begin = located[-1].start
            ((last_count, last),) = read_blocks(self.blocks[begin:], codec)
            if len(last) >= _BLOCK_BYTES:
                begin, last_count, last = len(self.blocks), 0, b""
        block = block_bytes(last_count + count, last + records, codec, sync)
        return replace(self, count=self.count + count, blocks=self.blocks[:begin] + block)


@dataclass(frozen=True)
class ManifestList:
    """The manifests of a snapshot: those that may be merged, and the settled ones, not decoded."""

    manifests: tuple[ManifestFile, ...] = ()
    settled: Settled | None = None

    @property
    def settled_count(self) -> int:
        return self.settled.count if self.settled else 0


def read_list(files: FileIO, path: str) -> ManifestList:
    """Read a manifest list.

    Raises:
        FileNotFoundError: it is not there.
        CorruptionError: it is damaged.
    """
    content = _read(files, path)
    header = read_header(content, path)
    blocks = content[header.length :]
    with damage_named(path):
        begin = _settled_begin(header, blocks)
        manifests = tuple(_decode(header, blocks[:begin]))
    if begin == len(blocks):
        return ManifestList(manifests)
    count = int(header.metadata[SETTLED])
    return ManifestList(manifests, Settled(count, blocks[begin:], header, path))


def read_manifest_paths(files: FileIO, path: str) -> set[str]:
    """Return where the manifests of a list are. Raises as `read_list` does."""
    records = AvroRecords(_read(files, path), path, read={_PATH_ID: _PATH})
    return {values[_PATH] for values in records.values()}


def _read(files: FileIO, path: str) -> bytes:
    with files.new_input(path).open(seekable=False) as file:
        return file.read()


def _settled_begin(header: AvroHeader, blocks: bytes) -> int:
    """Return where the settled manifests begin: at the end, if a file does not say so.

    Who edits such a file may copy its header and cut the blocks elsewhere.
    """
    left = int(header.metadata.get(SETTLED, b"0"))
    begin = len(blocks)
    for block in reversed(list(locate_blocks(blocks))):
        if left <= 0:
            break
        begin, left = block.start, left - block.records
    return len(blocks) if left else begin


def write_list(
    output: OutputFile,
    open_writer: Callable[[OutputFile], ManifestListWriter],
    manifests: Sequence[ManifestFile],
    newly_settled: Sequence[ManifestFile],
    settled: Settled | None,
) -> None:
    """Write a manifest list: manifests that may be merged, then settled ones, the newest first.

    Args:
        open_writer: has PyIceberg write lists of this snapshot.
        newly_settled: those that the parent's list has not as settled ones.
        settled: of the parent's list, copied.
    """
    header, records = _encode(open_writer, manifests)
    if settled is None or not settled.has_format_of(header):
        newly_settled = [*newly_settled, *(settled.manifests() if settled else ())]
        settled = Settled(0, b"", header, output.location)
    if newly_settled:
        settled = settled.add(len(newly_settled), _encode(open_writer, newly_settled)[1])
    sync = settled.header.sync
    header = replace(
        header,
        sync=sync,
        metadata={**header.metadata, SETTLED: str(settled.count).encode()},
    )
    with output.create(overwrite=True) as file:
        file.write(
            header.encode(header.schema, header.codec)
            + block_bytes(len(manifests), records, header.codec, sync)
            + settled.blocks
        )


def _encode(
    open_writer: Callable[[OutputFile], ManifestListWriter], manifests: Sequence[ManifestFile]
) -> tuple[AvroHeader, bytes]:
    """Return the header of a list, and the records of some manifests, not compressed."""
    file = _MemoryFile()
    with open_writer(file) as writer:
        writer.add_manifests(list(manifests))
    header = read_header(file.content, file.location)
    blocks = read_blocks(file.content[header.length :], header.codec)
    return header, b"".join(records for _, records in blocks)


def _decode(header: AvroHeader, blocks: bytes) -> list[ManifestFile]:
    file = _MemoryFile(header.encode(header.schema, header.codec) + blocks)
    return list(read_manifest_list(file))


class _MemoryFile(InputFile, OutputFile):
    """A file that PyIceberg reads or writes here."""

    def __init__(self, content: bytes = b"") -> None:
        super().__init__("memory:list.avro")
        self.content = content

    def __len__(self) -> int:
        return len(self.content)

    def exists(self) -> bool:
        return bool(self.content)

    def open(self, seekable: bool = True) -> io.BytesIO:  # noqa: ARG002, FBT001, FBT002
        return io.BytesIO(self.content)

    def create(self, overwrite: bool = False) -> _Kept:  # noqa: ARG002, FBT001, FBT002
        return _Kept(self)

    def to_input_file(self) -> InputFile:
        return self


class _Kept(io.BytesIO):
    """Gives its file what was written, once it is closed."""

    def __init__(self, file: _MemoryFile) -> None:
        super().__init__()
        self._file = file

    def close(self) -> None:
        if not self.closed:
            self._file.content = self.getvalue()
        super().close()
