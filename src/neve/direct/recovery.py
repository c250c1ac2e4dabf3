"""Recovery records: what `neve recover` needs to register files whose commit was not confirmed.

A record is durable before its rows are acknowledged, and removed once a table has them. Nothing
else removes it, but a person.
"""

from __future__ import annotations

import json
import os
import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from pyiceberg.table.metadata import TableMetadataV1

from neve.errors import ConfigError, CorruptionError, NotFoundError, StorageError, UnsupportedError
from neve.lake.file_store import FileStore
from neve.lake.unconfirmed import UnconfirmedWrite
from neve.limits import MIB

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyiceberg.manifest import DataFile
    from pyiceberg.table.metadata import TableMetadata

    from neve.lake.identifier import Identifier
    from neve.lake.profile import CatalogProfile

VERSION = 1
# A write has a file for each partition, and each takes some hundred bytes here.
MOST_BYTES = 4 * MIB
_SUFFIX = ".json"
_ID = re.compile(r"[0-9a-zA-Z-]{1,64}")
_READS_AT_ONCE = 16


@dataclass(frozen=True)
class RecordedFile:
    """A data file that was written for a table."""

    path: str
    size: int
    rows: int
    partition: tuple[Any, ...]
    spec_id: int
    sort_order_id: int | None


@dataclass(frozen=True)
class RecoveryRecord:
    """Files that were written and acknowledged, and whose commit was not confirmed.

    Args:
        append_id: of the commit; the summary of its snapshot has it, if it was applied.
        base_snapshot_id: `main` before the first attempt; None: the table had no snapshot.
        base_sequence_number: the table's last sequence number then. The append can only be among
            the snapshots with a greater one.
        written_at: when the record was made, by the clock of the writer.
    """

    append_id: str
    table: Identifier
    table_uuid: str
    base_snapshot_id: int | None
    base_sequence_number: int
    written_at: datetime
    files: tuple[RecordedFile, ...]

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.files)


@dataclass(frozen=True)
class StoredRecord:
    """A record as it is stored, or what is wrong with it."""

    id: str
    content: RecoveryRecord | CorruptionError


def make_record(
    append_id: str, table: Identifier, base: TableMetadata, files: Sequence[DataFile]
) -> RecoveryRecord:
    """Describe an append that was tried; see `RecoveryStore.keep`."""
    if isinstance(base, TableMetadataV1):
        raise UnsupportedError(
            f"table {'.'.join(table)} is of format v1, whose snapshots have no sequence numbers",
            hint="upgrade it to format v2",
        )
    return RecoveryRecord(
        append_id,
        table,
        str(base.table_uuid),
        base.current_snapshot_id,
        base.last_sequence_number,
        datetime.now(timezone.utc),
        tuple(
            RecordedFile(
                file.file_path,
                file.file_size_in_bytes,
                file.record_count,
                tuple(file.partition[place] for place in range(len(file.partition))),
                file.spec_id,
                file.sort_order_id,
            )
            for file in files
        ),
    )


def encode_record(record: RecoveryRecord) -> bytes:
    """Return a record as it is stored.

    Raises:
        StorageError: it cannot be stored: a partition of a type that JSON has not, too many files.
    """
    document = {"version": VERSION, **asdict(record), "written_at": record.written_at.isoformat()}
    try:
        content = json.dumps(document, allow_nan=False).encode()
    except (TypeError, ValueError) as error:
        raise StorageError(f"the recovery record cannot be written: {error}") from error
    if len(content) > MOST_BYTES:
        raise StorageError(
            f"the recovery record of {len(record.files)} files takes {len(content)} bytes, more "
            f"than {MOST_BYTES}",
            hint="write rows of fewer partitions at once",
        )
    return content


def decode_record(content: bytes) -> RecoveryRecord:
    """Return a stored record. Raises CorruptionError: it is damaged, or of a newer Neve."""
    try:
        document = json.loads(content)
        version = document.pop("version")
        if version != VERSION:
            raise CorruptionError(
                f"it has version {version!r}, and this Neve knows {VERSION}",
                hint="run neve recover of the version that wrote it",
            )
        files = tuple(_recorded_file(each) for each in document.pop("files"))
        table = tuple(document.pop("table"))
        written_at = datetime.fromisoformat(document.pop("written_at"))
        record = RecoveryRecord(table=table, written_at=written_at, files=files, **document)
        _check_types(record)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise CorruptionError(
            f"it is no recovery record: {type(error).__name__}",
            hint="restore the file, or drop it with: neve recover --forget ID",
        ) from error
    return record


def _recorded_file(document: dict[str, Any]) -> RecordedFile:
    return RecordedFile(**{**document, "partition": tuple(document["partition"])})


def _check_types(record: RecoveryRecord) -> None:
    texts = (record.append_id, record.table_uuid, *record.table, *(f.path for f in record.files))
    numbers = (record.base_sequence_number, *(n for f in record.files for n in (f.size, f.rows)))
    optional = (record.base_snapshot_id, *(f.sort_order_id for f in record.files))
    numbers += (*(f.spec_id for f in record.files), *(n for n in optional if n is not None))
    if not all(isinstance(text, str) for text in texts):
        raise TypeError("a text is expected")
    if not all(isinstance(number, int) for number in numbers):
        raise TypeError("a number is expected")
    if len(record.table) < 2 or not record.files:
        raise ValueError("a table and files are expected")


class RecoveryStore:
    """The records in a directory or a bucket. May be used by many processes at once."""

    def __init__(self, profile: CatalogProfile, location: str) -> None:
        self.location = location.rstrip("/")
        self._files = FileStore(profile)

    def close(self) -> None:
        self._files.close()

    def __enter__(self) -> RecoveryStore:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def keep(
        self, append_id: str, table: Identifier, base: TableMetadata, files: Sequence[DataFile]
    ) -> str:
        """Store the record of an append that was not confirmed, as `write` does.

        Args:
            base: the table before the first attempt.

        Raises:
            UnsupportedError: the table is of format v1, where nothing would ever prove that the
                append was not applied.
        """
        return self.write(make_record(append_id, table, base, files))

    def write(self, record: RecoveryRecord) -> str:
        """Store a record and return its path. Atomic; durable when it returns.

        Raises:
            StorageError: it may be stored or not, and nobody may rely on it.
        """
        path, content = self._path(record.append_id), encode_record(record)
        # False: a first attempt whose answer was lost. No other writer has this id.
        if not self._files.write_new(path, content) and self._files.read(path) != content:
            raise StorageError(f"another file is at {path}")
        return path

    def read_all(self) -> list[StoredRecord]:
        """Return all records, the oldest first; damaged ones last."""
        sizes = self._files.list_sizes(self.location)
        names = {
            path.removeprefix(self.location + "/").removesuffix(_SUFFIX): size
            for path, size in sizes.items()
            # Others are what a killed writer left: a record that was never complete.
            if path.endswith(_SUFFIX)
        }
        with ThreadPoolExecutor(_READS_AT_ONCE) as pool:
            records = [
                StoredRecord(name, content)
                for name, content in zip(names, pool.map(self._read, names.items()), strict=True)
                # None: another `neve recover` has removed it meanwhile.
                if content is not None
            ]
        return sorted(records, key=_age_order)

    def read(self, record_id: str) -> StoredRecord:
        """Return one record. Raises NotFoundError."""
        size = self._files.size(self._path(record_id)) if _ID.fullmatch(record_id) else None
        content = None if size is None else self._read((record_id, size))
        if content is None:
            raise NotFoundError(
                f"{self.location} has no recovery record {record_id}", hint="see: neve recover"
            )
        return StoredRecord(record_id, content)

    def remove(self, record_id: str) -> None:
        """Remove a record; one that does not exist is no error."""
        self._files.delete([self._path(record_id)])

    def check(self) -> None:
        """Write and delete a file there. Raises StorageError, UnsupportedError."""
        self._files.check_conditional_put(self.location)

    def _path(self, record_id: str) -> str:
        return f"{self.location}/{record_id}{_SUFFIX}"

    def _read(self, name_and_size: tuple[str, int]) -> RecoveryRecord | CorruptionError | None:
        name, size = name_and_size
        if size > MOST_BYTES:
            return CorruptionError(
                f"it has {size} bytes, and a recovery record at most {MOST_BYTES}"
            )
        try:
            record = decode_record(self._files.read(self._path(name)))
        except NotFoundError:
            return None
        except CorruptionError as error:
            return error
        if record.append_id != name:
            return CorruptionError("it has another id than its file name says")
        return record


def unconfirmed_writes(profile: CatalogProfile, location: str) -> list[UnconfirmedWrite]:
    """Return the writes that have a recovery record, for those who must leave their files alone.

    Raises:
        CorruptionError: a record cannot be read, so that nobody knows which files it names.
    """
    writes = []
    with RecoveryStore(profile, location) as store:
        for stored in store.read_all():
            record = stored.content
            if isinstance(record, CorruptionError):
                raise CorruptionError(
                    f"recovery record {stored.id} cannot be read: {record.message}",
                    hint="see: neve recover",
                ) from record
            paths = tuple(file.path for file in record.files)
            writes.append(
                UnconfirmedWrite(
                    record.table, record.table_uuid, record.base_sequence_number, paths
                )
            )
    return writes


def _age_order(stored: StoredRecord) -> tuple[bool, str, str]:
    if isinstance(stored.content, CorruptionError):
        return True, "", stored.id
    written_at = stored.content.written_at.astimezone(timezone.utc)
    return False, written_at.isoformat(), stored.id


def require_recovery(profile: CatalogProfile, location: str) -> None:
    """Refuse to accept what is not confirmed where files or records would not last.

    Raises:
        ConfigError: the service removes files that no snapshot has, or the disk is lost.
    """
    if profile.settings.type == "s3tables":
        raise ConfigError(
            "direct.when_unavailable is accept, and S3 Tables removes files that no snapshot has: "
            "accepted rows could be lost",
            hint="set direct.when_unavailable to refuse, so that clients send requests again",
        )
    # Set by the service in every function.
    if "AWS_LAMBDA_FUNCTION_NAME" in os.environ and "://" not in location:
        raise ConfigError(
            f"direct.recovery is {location}, and the disk of a function does not last",
            hint="set direct.recovery to an address such as s3://bucket/recovery",
        )
