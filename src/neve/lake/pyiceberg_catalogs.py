"""PyIceberg's catalogs with what they lack.

Time-outs; nothing left by a refused commit; metadata as it is, also what PyIceberg's model lacks.

They override private methods, so the contract test of `pyiceberg_private.py` is theirs, too. Not in
that file, since tasks import it, and the executors of a cluster have no database drivers.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, cast

import requests
from pyiceberg.catalog import delete_files
from pyiceberg.catalog.rest import Capability, Endpoints, RestCatalog
from pyiceberg.catalog.rest.scan_planning import StorageCredential
from pyiceberg.catalog.sql import IcebergTables, SqlCatalog
from pyiceberg.exceptions import (
    CommitFailedException,
    NoSuchNamespaceError,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.io import FileIO, load_file_io
from pyiceberg.typedef import EMPTY_DICT, Properties
from requests.adapters import BaseAdapter
from sqlalchemy import insert, select, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from neve.lake.metadata_json import MetadataJson
from neve.lake.profile import s3_file_io
from neve.lake.pyiceberg_private import raise_for_answer
from neve.lake.sqlite_timeout import bound_locks

if TYPE_CHECKING:
    from pyiceberg.table import CommitTableResponse, StagedTable, Table
    from pyiceberg.table.update import TableRequirement, TableUpdate
    from pyiceberg.typedef import Identifier
    from sqlalchemy import ColumnElement, CursorResult

    from neve.lake.timeouts import Timeouts


_EXPIRED_LOGIN = (401, 419)


class NeveRestCatalog(RestCatalog):
    """PyIceberg's REST catalog, each of whose requests ends in time."""

    def __init__(self, name: str, timeouts: Timeouts, **properties: str) -> None:
        # The constructor sends requests already.
        self._timeouts = timeouts
        super().__init__(name, **properties)

    def _config_headers(self, session: requests.Session) -> None:
        # The first thing that is done with a new session, before it sends for a token.
        super()._config_headers(session)
        self._bound(session)

    def _init_sigv4(self, session: requests.Session) -> None:
        super()._init_sigv4(session)
        self._bound(session)

    def _load_file_io(
        self, properties: Properties = EMPTY_DICT, location: str | None = None
    ) -> FileIO:
        # Without the catalog's session and login, which PyIceberg adds for stores that its fsspec
        # signs for: tasks are sent a table's properties, and executors have no catalog.
        # A warehouse may be a name: only a table's location says which store it is in.
        named = {**s3_file_io(location or ""), **self.properties, **properties}
        return load_file_io(named, location)

    def read_document(self, identifier: Identifier) -> tuple[MetadataJson, FileIO]:
        """Return a table's metadata as the server has it, all snapshots, and access to its files.

        Raises:
            NoSuchTableError: also where there is no such namespace.
        """
        return self._read_answer(self._get_table(identifier))

    def read_changed_document(
        self, identifier: Identifier, etag: str | None
    ) -> tuple[MetadataJson, FileIO] | None:
        """Return a table as `read_document` does; None: the server says that it is as it was.

        Args:
            etag: what the server called the version that was read, or committed; None: unknown.
        """
        if etag is None:
            return self.read_document(identifier)
        response = self._get_table(identifier, {"If-None-Match": etag})
        is_same = response.status_code == HTTPStatus.NOT_MODIFIED
        return None if is_same else self._read_answer(response)

    def _get_table(
        self, identifier: Identifier, headers: Mapping[str, str] = EMPTY_DICT
    ) -> requests.Response:
        return self._exchange(
            "GET",
            self._table_url(identifier),
            {404: NoSuchTableError},
            params={"snapshots": "all"},
            headers=headers,
        )

    def _read_answer(self, response: requests.Response) -> tuple[MetadataJson, FileIO]:
        answer = response.json()
        location, document = answer["metadata-location"], answer["metadata"]
        credentials = [
            StorageCredential.model_validate(each)
            for each in answer.get("storage-credentials") or ()
        ]
        properties = {
            **(document.get("properties") or {}),
            **(answer.get("config") or {}),
            **self._resolve_storage_credentials(credentials, location),
        }
        metadata = MetadataJson(location, document, response.headers.get("ETag"))
        return metadata, self._load_file_io(properties, location)

    def can_register(self) -> bool:
        """Tell whether the server says that it registers tables."""
        return Capability.V1_REGISTER_TABLE in self._supported_endpoints

    def register_metadata(
        self, identifier: Identifier, metadata_location: str, *, overwrite: bool = False
    ) -> None:
        """Register a table without reading it here: one attempt.

        Raises:
            NoSuchNamespaceError: nothing was registered.
            TableAlreadyExistsError: nothing was registered; with `overwrite`: the server cannot.
            NotImplementedError: the server says that it cannot.
        """
        namespace = self._split_identifier_for_path(identifier)["namespace"]
        # A server that does not know `overwrite` may refuse it even if it is false.
        body = {"name": identifier[-1], "metadata-location": metadata_location} | (
            {"overwrite": True} if overwrite else {}
        )
        errors: dict[int, type[Exception]] = {
            404: NoSuchNamespaceError,
            406: NotImplementedError,
            409: TableAlreadyExistsError,
        }
        self._exchange(
            "POST", self.url(Endpoints.register_table, namespace=namespace), errors, body
        ).json()

    def update_table(
        self,
        identifier: Identifier,
        requirements: Sequence[Mapping[str, Any]],
        updates: Sequence[Mapping[str, Any]],
    ) -> MetadataJson | None:
        """Send updates as JSON, since PyIceberg's have no row ids: atomic, one attempt.

        Return the new metadata; None: the server does not give it.

        Raises:
            CommitFailedException: a requirement is not met; nothing was applied.
        """
        name = {"namespace": list(identifier[:-1]), "name": identifier[-1]}
        body = {"identifier": name, "requirements": requirements, "updates": updates}
        errors = {404: NoSuchTableError, 409: CommitFailedException}
        response = self._exchange("POST", self._table_url(identifier), errors, body)
        answer = response.json()
        location, document = answer.get("metadata-location"), answer.get("metadata")
        if not (location and document):
            return None
        return MetadataJson(location, document, response.headers.get("ETag"))

    def _table_url(self, identifier: Identifier) -> str:
        return self.url(Endpoints.load_table, **self._split_identifier_for_path(identifier))

    def _exchange(
        self,
        method: str,
        url: str,
        errors: dict[int, type[Exception]],
        body: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> requests.Response:
        """Send one request; errors are PyIceberg's."""
        content = None if body is None else json.dumps(body).encode()
        response = self._session.request(method, url, data=content, **options)
        if response.status_code in _EXPIRED_LOGIN:
            # Certain: nothing was applied.
            self._refresh_token()
            response = self._session.request(method, url, data=content, **options)
        try:
            response.raise_for_status()
        except requests.HTTPError as error:
            raise_for_answer(error, errors)
        return response

    def _bound(self, session: requests.Session) -> None:
        for prefix, adapter in list(session.adapters.items()):
            if not isinstance(adapter, _BoundedAdapter):
                session.mount(prefix, _BoundedAdapter(adapter, self._timeouts))


class _BoundedAdapter(BaseAdapter):
    """Sends requests through another adapter, with time-outs. Repeats none of them."""

    def __init__(self, adapter: BaseAdapter, timeouts: Timeouts) -> None:
        super().__init__()
        self._adapter = adapter
        self._timeouts = timeouts

    def send(
        self, request: requests.PreparedRequest, *arguments: Any, **options: Any
    ) -> requests.Response:
        timeouts = self._timeouts.now()
        options["timeout"] = options.get("timeout") or (
            timeouts.connect_seconds,
            timeouts.answer_seconds,
        )
        return self._adapter.send(request, *arguments, **options)

    def close(self) -> None:
        self._adapter.close()


class NeveSqlCatalog(SqlCatalog):
    """PyIceberg's catalog in a database.

    Its exchanges with PostgreSQL end in time, and so does the wait for a lock of SQLite; a refused
    commit leaves no metadata file behind.
    """

    def __init__(self, name: str, timeouts: Timeouts, **properties: str) -> None:
        self._timeouts = timeouts
        # Commits run on several threads.
        self._staged = threading.local()
        super().__init__(name, **properties)

    def _init_catalog(self) -> None:
        # Called by the constructor when there is an engine, and no connection yet.
        if self.engine.dialect.name == "postgresql":
            # Imported here: on AWS Lambda there is no driver of PostgreSQL.
            from neve.lake.postgres_timeout import bound_answers

            bound_answers(self.engine, self._timeouts)
        else:
            bound_locks(self.engine)
        super()._init_catalog()

    def commit_table(
        self,
        table: Table,
        requirements: tuple[TableRequirement, ...],
        updates: tuple[TableUpdate, ...],
    ) -> CommitTableResponse:
        outer = getattr(self._staged, "table", None)
        self._staged.table = None
        try:
            return super().commit_table(table, requirements, updates)
        except CommitFailedException:
            # Certain: the row names another metadata file, and nobody ever saw this one.
            staged = self._staged.table
            if staged is not None:
                delete_files(staged.io, {staged.metadata_location}, "metadata")
            raise
        finally:
            self._staged.table = outer

    def metadata_location(self, identifier: Identifier) -> str:
        """Return the metadata file that a table's row names. Raises NoSuchTableError."""
        row = select(IcebergTables.metadata_location).where(*self._row(identifier))
        is_table = self._iceberg_type_filter()
        if is_table is not None:
            row = row.where(is_table)
        with Session(self.engine) as session:
            location = session.scalar(row)
        if location is None:
            raise NoSuchTableError(f"Table does not exist: {'.'.join(identifier)}")
        return location

    def metadata_files(self) -> dict[tuple[str, ...], str | None]:
        """Return every table with the metadata file that its row names."""
        rows = select(
            IcebergTables.table_namespace, IcebergTables.table_name, IcebergTables.metadata_location
        ).where(IcebergTables.catalog_name == self.name)
        is_table = self._iceberg_type_filter()
        if is_table is not None:
            rows = rows.where(is_table)
        with Session(self.engine) as session:
            return {
                (*namespace.split("."), name): location
                for namespace, name, location in session.execute(rows)
            }

    def insert_metadata(self, identifier: Identifier, location: str) -> None:
        """Make a row for a table, if there is none: atomic, one attempt.

        Raises TableAlreadyExistsError. The namespace must exist.
        """
        namespace = self.namespace_to_string(identifier[:-1])
        row = self._create_table_row(namespace, identifier[-1], location)
        with Session(self.engine) as session:
            try:
                session.execute(insert(IcebergTables).values(**row))
            except IntegrityError as error:
                raise TableAlreadyExistsError(
                    f"Table or view exists: {'.'.join(identifier)}"
                ) from error
            session.commit()

    def swap_metadata(self, identifier: Identifier, base: str, location: str) -> None:
        """Have a table's row name another metadata file, if it still names `base`.

        Atomic, one attempt. Raises CommitFailedException: it names another one.
        """
        with Session(self.engine) as session:
            swap = (
                update(IcebergTables)
                .where(*self._row(identifier), IcebergTables.metadata_location == base)
                .values(metadata_location=location, previous_metadata_location=base)
            )
            if cast("CursorResult[Any]", session.execute(swap)).rowcount < 1:
                raise CommitFailedException(
                    f"Table has been updated by another process: {'.'.join(identifier)}"
                )
            session.commit()

    def _row(self, identifier: Identifier) -> tuple[ColumnElement[bool], ...]:
        return (
            IcebergTables.catalog_name == self.name,
            IcebergTables.table_namespace == self.namespace_to_string(identifier[:-1]),
            IcebergTables.table_name == identifier[-1],
        )

    def _update_and_stage_table(
        self,
        current_table: Table | None,
        table_identifier: Identifier,
        requirements: tuple[TableRequirement, ...],
        updates: tuple[TableUpdate, ...],
    ) -> StagedTable:
        # Only here is the name of the metadata file known before it is written.
        staged = super()._update_and_stage_table(
            current_table, table_identifier, requirements, updates
        )
        self._staged.table = staged
        return staged
