"""Tables of every kind go from store to store, and home again; each source is deleted."""

import uuid

import pytest

import neve
from neve.lake.identifier import quote_identifier
from neve.lake.table_ref import TableRef
from tests.support.lakes import postgres_settings, rest_settings, sqlite_settings
from tests.support.moving import (
    agreed,
    destroy,
    make_by_pyiceberg,
    make_by_spark,
    read_by_all,
    read_by_duckdb,
    read_by_spark,
    refs_of,
    with_catalogs,
)
from tests.support.servers import running_rest_catalog, running_s3


@pytest.fixture(scope="module")
def other_s3(tmp_path_factory):
    """Another store: another bucket, and other credentials."""
    directory = tmp_path_factory.mktemp("other-s3")
    with running_s3(
        directory, "vault", access_key="other", secret_key="another/secret+34"
    ) as server:
        yield server


@pytest.fixture(scope="module")
def other_rest_catalog(tmp_path_factory, other_s3):
    with running_rest_catalog(tmp_path_factory.mktemp("other-rest"), other_s3) as server:
        yield server


@pytest.fixture
def open_lake(embedded_lake, tmp_path):
    """Open an embedded lake that knows further catalogs."""
    opened = []

    def open_lake(**catalogs):
        settings = with_catalogs(sqlite_settings(tmp_path), tmp_path / "journals", **catalogs)
        opened.append(neve.open(settings))
        return opened[-1]

    yield open_lake
    for lake in opened:
        lake.close()


@pytest.fixture
def namespace():
    return f"t_{uuid.uuid4().hex[:12]}"


def in_catalog(catalog, tables):
    return [TableRef(catalog, table.identifier) for table in tables]


def work_on(lake, table):
    """Append, merge, compact and expire, as if the table had always been here."""
    name, catalog = table.quoted, table.catalog
    procedure = {"table": quote_identifier(table.identifier)}
    before = lake.sql(f"SELECT count(*) AS n FROM {name}").collect()[0].n
    columns = len(lake.load(table).schema().fields)
    row = ", ".join(("1000", "'new'", "0.5")[:columns])
    lake.sql(f"INSERT INTO {name} VALUES ({row})")
    lake.sql(
        f"MERGE INTO {name} t USING (SELECT 1000 AS id) s ON t.id = s.id "
        "WHEN MATCHED THEN UPDATE SET day = 'merged'"
    )
    lake.sql(
        f"CALL {catalog}.system.rewrite_data_files(table => :table, "
        "options => map('rewrite-all', 'true'))",
        procedure,
    )
    lake.sql(
        f"CALL {catalog}.system.expire_snapshots(table => :table, retain_last => 1, "
        "older_than => TIMESTAMP '2100-01-01 00:00:00')",
        procedure,
    )
    days = [row.day for row in lake.sql(f"SELECT day FROM {name} WHERE id = 1000").collect()]
    assert days == ["merged"]
    assert lake.sql(f"SELECT count(*) AS n FROM {name}").collect()[0].n == before + 1


def test_there_and_back(
    open_lake, namespace, rest_catalog, s3, other_rest_catalog, other_s3, tmp_path
):
    lake = open_lake(
        here=rest_settings(rest_catalog.uri, s3, warehouse=f"s3://{s3.bucket}/moved"),
        there=rest_settings(
            other_rest_catalog.uri, other_s3, warehouse=f"s3://{other_s3.bucket}/moved"
        ),
        home=sqlite_settings(tmp_path / "home"),
    )
    tables = make_by_spark(lake, "lake", namespace)
    tables.append(TableRef("lake", (namespace, "odd names")))
    make_by_pyiceberg(lake, tables[-1])
    rows = {table.identifier: read_by_spark(lake, table) for table in tables}
    refs = {table.identifier: refs_of(lake, table) for table in tables}
    for source, target in (("lake", "here"), ("here", "there"), ("there", "home")):
        reports = lake.move(f"{source}.{namespace}", to=target)
        assert [report.outcome for report in reports] == ["registered"] * len(tables)
        destroy(lake, in_catalog(source, tables))
        for table in in_catalog(target, tables):
            assert refs_of(lake, table) == refs[table.identifier]
            if target == "there":
                assert agreed(read_by_all(lake, table)) == rows[table.identifier]
    journals = "".join(path.read_text() for path in (tmp_path / "journals").rglob("*.jsonl"))
    assert s3.secret_key not in journals
    assert other_s3.secret_key not in journals
    for table in in_catalog("home", tables):
        assert read_by_duckdb(lake, table) == rows[table.identifier]
    # The others are worked on in the soak.
    for name in ("vectors", "odd names"):
        work_on(lake, TableRef("home", (namespace, name)))


@pytest.mark.soak
def test_from_postgresql_to_rest(open_lake, namespace, postgres, rest_catalog, s3, other_s3):
    lake = open_lake(
        database=postgres_settings(postgres, other_s3),
        rest=rest_settings(rest_catalog.uri, s3, warehouse=f"s3://{s3.bucket}/moved"),
    )
    tables = make_by_spark(lake, "database", namespace)
    rows = {table.identifier: read_by_spark(lake, table) for table in tables}
    reports = lake.move(f"database.{namespace}", to="rest", verify="full", engine="spark")
    assert [report.outcome for report in reports] == ["registered"] * len(tables)
    destroy(lake, tables)
    for table in in_catalog("rest", tables):
        assert agreed(read_by_all(lake, table)) == rows[table.identifier]
        work_on(lake, table)
