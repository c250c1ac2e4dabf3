"""The lake: catalogs and Spark behind one object, opened from one configuration."""

from __future__ import annotations

import copy
import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Union

from neve.config import Settings
from neve.lake.identifier import Identifier, parse_identifier, quote_identifier
from neve.lake.paths import may_make_unusable_place, require_usable_places
from neve.lake.profile import DEFAULT_CATALOG, CatalogProfile, profile_named, profiles
from neve.lake.table_ref import TableRef
from neve.lake.warehouse import require_one_spelling, require_usable_warehouse

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table
    from pyspark.sql import DataFrame, SparkSession
    from typing_extensions import Self

    from neve.lake.jvm.arrow_stream import Query
    from neve.lake.jvm.relations import RelationKind
    from neve.lake.metadata_reader import MetadataReader
    from neve.lake.tables import TableDescription, TableSummary

logger = logging.getLogger(__name__)

SqlArgs = Union[dict[str, Any], list[Any], None]  # noqa: UP007 - a type at run time on Python 3.10

# Who pressed Ctrl-C does not wait longer than this for Spark to close.
_INTERRUPTED_SECONDS = 0.75


class Lake:
    """Everything a configuration names, connected on first use and closed together."""

    def __init__(self, settings: Settings, progress: Callable[[str], None] = logger.info) -> None:
        """Open nothing yet. Raises ConfigError: `require_one_spelling`."""
        for profile in profiles(settings).values():
            require_one_spelling(profile)
        self.settings = settings
        self.progress = progress
        self._catalogs: dict[str, Catalog] = {}
        self._session: SparkSession | None = None
        # Several threads may ask first for a catalog or for Spark.
        self._lock = threading.RLock()
        # Sessions that nobody uses at present: threads take and give them.
        self._kept_sessions: list[SparkSession] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        interrupted = kind is not None and issubclass(kind, KeyboardInterrupt)
        self._close(_INTERRUPTED_SECONDS if interrupted else None)

    @property
    def profile(self) -> CatalogProfile:
        """The configured catalog, which is every session's default."""
        return profile_named(self.settings, DEFAULT_CATALOG)

    @property
    def spark(self) -> SparkSession:
        """A Spark session that knows every configured catalog; started on first use.

        A JVM that died meanwhile (out of memory, killed) is replaced.
        """
        with self._lock:
            if self._session is not None:
                from neve.lake import jvm, session

                if not jvm.is_running(self._session.sparkContext):
                    dead, self._session = self._session, None
                    session.end_session(dead)
            if self._session is None:
                self._session = self._start_session()
            return self._session

    def take_session(self) -> SparkSession | None:
        """Return a session that was kept, for one user at a time; None: there is none."""
        from neve.lake import jvm

        while self._kept_sessions:
            try:
                session = self._kept_sessions.pop()
            except IndexError:
                break
            if jvm.is_running(session.sparkContext):
                return session
        return None

    def keep_session(self, session: SparkSession) -> None:
        """Keep a session for the next one who needs one; it is closed with the lake."""
        self._kept_sessions.append(session)

    def in_session(self, session: SparkSession) -> Self:
        """Return this lake with another session of the same Spark; it is not to be closed."""
        lake = copy.copy(self)
        lake._session = session  # noqa: SLF001 - of its own class
        return lake

    def spark_settings(self) -> Mapping[str, str]:
        """Return the settings of the Spark session as they are now; starts none.

        The default catalog is the one that `USE` chose. Without a session: what was configured.
        """
        if self._session is None:
            return self.settings.spark.conf
        from neve.lake import jvm

        if not jvm.is_running(self._session.sparkContext):
            return self.settings.spark.conf
        from neve.lake.jvm.tables import session_settings

        with self.explaining():
            return session_settings(self._session)

    def catalog(self, name: str = DEFAULT_CATALOG) -> Catalog:
        """Return a PyIceberg catalog; connected on first use."""
        with self._lock:
            if name not in self._catalogs:
                from neve.lake.catalog import open_catalog

                self._catalogs[name] = open_catalog(profile_named(self.settings, name))
            return self._catalogs[name]

    def reader(self, name: str = DEFAULT_CATALOG) -> MetadataReader:
        """Return what lists tables and reads their metadata, without PyIceberg where it can."""
        from neve.lake.metadata_reader import open_reader

        return open_reader(profile_named(self.settings, name), lambda: self.catalog(name))

    def ref(self, name: str | Identifier) -> TableRef:
        """Name a table: `ns.table` of the configured catalog, `catalog.ns.table` of a further one.

        As in Spark, the first of three parts is a catalog if one has that name. An identifier is
        one of the configured catalog.
        """
        if not isinstance(name, str):
            return TableRef(DEFAULT_CATALOG, name)
        first, *rest = parse_identifier(name)
        if len(rest) > 1 and (further := profiles(self.settings).get(first)):
            return TableRef(first, further.as_listed(tuple(rest)))
        return TableRef(DEFAULT_CATALOG, self.profile.as_listed((first, *rest)))

    def load(self, ref: TableRef) -> Table:
        """Load a table as its catalog has it now. Raises NotFoundError, naming what is near."""
        from neve.lake.catalog import load_table

        profile = profile_named(self.settings, ref.catalog)
        return load_table(profile, self.catalog(ref.catalog), ref.identifier)

    def sql(self, statement: str, args: SqlArgs = None) -> DataFrame:
        """Run Spark SQL. Two-part names and `CALL system.…` mean the configured catalog.

        Args:
            args: the values of `:name`, by name, or of each `?`, in their order.
        """
        spark = self.spark
        with self.explaining():
            if may_make_unusable_place(statement):
                from neve.lake.jvm.new_places import new_places

                require_usable_places(*new_places(spark, statement))
            return spark.sql(statement, args)

    def query(self, statement: str) -> pa.Table:
        """Run Spark SQL and bring the whole result here, where it must fit into memory."""
        with self.explaining():
            return self.run(statement).table()

    def run(self, statement: str) -> Query:
        """Run Spark SQL so that its rows can be read piece by piece, and Ctrl-C cancels it."""
        return self.stream(lambda: self.sql(statement))

    def stream(self, make_frame: Callable[[], DataFrame]) -> Query:
        """Read a DataFrame's rows piece by piece; Ctrl-C cancels it, and what makes it, too."""
        from neve.lake.jvm.arrow_stream import Query

        spark = self.spark
        with self.explaining():
            return Query(spark, make_frame)

    def relation_kind(self, name: Identifier) -> RelationKind:
        """Say what a name means to Spark in its session as it is now.

        Raises:
            NotFoundError: it means nothing.
        """
        from neve.lake.jvm.relations import relation_kind

        spark = self.spark
        with self.explaining():
            return relation_kind(spark, quote_identifier(name))

    def tables(self, namespace: str | None = None) -> list[TableSummary]:
        """List the tables of a namespace, or all; one that cannot be read has an `error`."""
        from neve.lake.tables import summarize

        self.profile.require_catalog("listing tables")
        reader = self.reader()
        names = reader.list_tables(self.profile.namespace(namespace) if namespace else None)
        # Of one that was dropped meanwhile there is nothing to say.
        loaded = {name: read for name, read in reader.read_all(names).items() if read is not None}
        return [summarize(name, read) for name, read in loaded.items()]

    def table(self, name: str) -> TableDescription:
        """Describe one table: columns, partitions, sort order, refs, properties.

        Raises:
            NotFoundError: there is no such table.
        """
        from neve.lake.tables import describe

        self.profile.require_catalog("describing a table")
        ref = self.ref(name)
        return describe(ref.name, self.reader(ref.catalog).read_document(ref.identifier))

    def close(self) -> None:
        """Close what this lake opened; Spark stops when no other lake of the process uses it."""
        self._close(None)

    def _close(self, seconds: float | None) -> None:
        if self._session is not None:
            from neve.lake.session import end_session

            session, self._session = self._session, None
            kept, self._kept_sessions = self._kept_sessions, []
            end_session(session, seconds, kept)
        for catalog in self._catalogs.values():
            catalog.close()
        self._catalogs.clear()

    def _start_session(self) -> SparkSession:
        from neve.lake.session import new_session
        from neve.lake.shared_paths import require_shared

        known = profiles(self.settings)
        for profile in known.values():
            require_usable_warehouse(profile)
        require_shared(self.settings.spark, "catalog.warehouse", self.profile.local_warehouse)
        if self.profile.has_catalog:
            # Python says in a second, and more clearly, what Java would say after ten.
            self.catalog()
        conf = {
            key: value for profile in known.values() for key, value in profile.spark_conf().items()
        }
        if self.profile.has_catalog:
            conf["spark.sql.defaultCatalog"] = DEFAULT_CATALOG
        with self.explaining():
            return new_session(self.settings.spark, conf, self.progress)

    @contextmanager
    def explaining(self) -> Iterator[None]:
        """Raise a `NeveError` in place of what Spark raises inside the block."""
        from neve.lake import jvm
        from neve.lake.sql import explain, missing_relation

        try:
            yield
        except jvm.JavaError as error:
            relation = missing_relation(error, profiles(self.settings))
            if relation and self.profile.has_catalog:
                from neve.lake.catalog import missing_table

                raise missing_table(self.profile, self.catalog(), relation) from error
            raise explain(error) from error
