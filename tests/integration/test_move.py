"""Tables of every kind go from store to store, and home again; each source is deleted."""

import hashlib
import itertools
import json
import os
import signal
import subprocess
import uuid
from dataclasses import replace

import pytest

import neve
from neve.errors import UnsupportedError
from neve.failpoints import ENVIRONMENT_VARIABLE, POINTS
from neve.index import maintain
from neve.lake.file_store import FileStore
from neve.lake.identifier import quote_identifier
from neve.lake.profile import profile_named
from neve.lake.table_ref import TableRef
from tests.support.command import NEVE
from tests.support.lakes import postgres_settings, rest_settings, sqlite_settings
from tests.support.merging import Mirrored, event
from tests.support.moved_tables import (
    agreed,
    destroy,
    make_by_pyiceberg,
    make_by_spark,
    read_by_all,
    read_by_duckdb,
    read_by_pyiceberg,
    read_by_spark,
    refs_of,
    rows_of,
    with_catalogs,
)
from tests.support.proxy import Response, running_proxy
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
    rows = {table.identifier: read_by_duckdb(lake, table) for table in tables}
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


def test_a_store_that_ignores_put_if_absent_is_refused(open_lake, namespace, other_s3, tmp_path):
    def ignore(request, forward):
        answer = forward(request)
        tag = hashlib.md5(request.body, usedforsecurity=False).hexdigest()
        return Response(200, {"ETag": f'"{tag}"'}) if answer.status == 412 else answer

    with running_proxy(int(other_s3.endpoint.rpartition(":")[2]), [ignore]) as proxy:
        lake = open_lake(
            careless=_embedded_on(tmp_path / "careless", replace(other_s3, endpoint=proxy.uri))
        )
        make_by_pyiceberg(lake, TableRef("lake", (namespace, "orders")))
        with pytest.raises(UnsupportedError, match="ignores If-None-Match"):
            lake.move(f"{namespace}.orders", to="careless")
        store = FileStore(profile_named(lake.settings, "careless"))
        assert store.list_sizes(f"s3://{other_s3.bucket}/careless") == {}
        store.close()


@pytest.mark.soak
def test_stores_that_fail_every_tenth_request(open_lake, namespace, s3, other_s3, tmp_path):
    def every_tenth(request, forward, count=itertools.count(1)):  # noqa: B008 - one for all
        if next(count) % 10 == 0:
            return Response(503, {}, b"")
        return forward(request)

    with running_proxy(int(other_s3.endpoint.rpartition(":")[2]), [every_tenth]) as proxy:
        flaky = replace(other_s3, endpoint=proxy.uri)
        lake = open_lake(
            flaky=_embedded_on(tmp_path / "flaky", flaky), back=_embedded_on(tmp_path / "back", s3)
        )
        table = TableRef("lake", (namespace, "orders"))
        make_by_pyiceberg(lake, table)
        rows = read_by_pyiceberg(lake, table)
        lake.move(f"{namespace}.orders", to="flaky")
        lake.move(f"flaky.{namespace}.orders", to="back")
    assert read_by_pyiceberg(lake, TableRef("back", table.identifier)) == rows


def _embedded_on(directory, storage):
    settings = rest_settings("http://unused", storage)
    catalog = sqlite_settings(directory, warehouse=f"s3://{storage.bucket}/{directory.name}")
    return settings.model_copy(update={"catalog": catalog.catalog})


@pytest.mark.soak
@pytest.mark.parametrize("point", [name for name in POINTS if name.startswith("move.")])
def test_killed_on_the_way_to_rest_and_s3(open_lake, namespace, rest_catalog, s3, tmp_path, point):
    """By SIGKILL, as the installed command; the source is written to and expired meanwhile."""
    rest = rest_settings(rest_catalog.uri, s3, warehouse=f"s3://{s3.bucket}/moved")
    lake = open_lake(rest=rest)
    table = TableRef("lake", (namespace, "orders"))
    make_by_pyiceberg(lake, table)
    config = tmp_path / "neve.yaml"
    document = lake.settings.model_dump(mode="json", include={"catalog", "catalogs", "move"})
    storage = document["catalogs"]["rest"]["storage"]
    storage["secret_access_key"] = s3.secret_key
    config.write_text(json.dumps(document))
    command = [NEVE, "-c", config, "--json", "move", f"{namespace}.orders", "--to", "rest"]
    killed = subprocess.run(
        command,
        env={**os.environ, ENVIRONMENT_VARIABLE: point},
        check=False,
        capture_output=True,
        text=True,
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    existing = ["--incremental"] if point == "move.registered" else []
    lake.load(table).append(rows_of(70))
    lake.sql(
        f"CALL system.expire_snapshots(table => '{namespace}.orders', retain_last => 2, "
        "older_than => TIMESTAMP '2100-01-01 00:00:00')"
    )
    again = subprocess.run([*command, *existing], check=False, capture_output=True, text=True)
    assert again.returncode == 0, again.stderr
    assert s3.secret_key not in again.stdout + again.stderr
    moved, present = TableRef("rest", table.identifier), read_by_pyiceberg(lake, table)
    # What the source has expired, the target may still have.
    assert read_by_pyiceberg(lake, moved).items() >= present.items()


@pytest.mark.soak
def test_a_mirror_goes_on_at_its_target(open_lake, rest_catalog, s3):
    rest = rest_settings(rest_catalog.uri, s3, warehouse=f"s3://{s3.bucket}/moved")
    lake = open_lake(rest=rest)
    mirrored = Mirrored(lake)
    mirrored.append(event("I", 1, 1, "a"), event("I", 2, 2, "b"), event("D", 3, 2))
    mirrored.merge()
    mirrored.append(event("U", 4, 1, "c"), event("I", 5, 3, "d"))
    mirrored.merge()
    maintain.build(lake, (mirrored.namespace, "rows"))
    reports = lake.move(mirrored.namespace, to="rest")
    assert any("index stays behind" in line for report in reports for line in report.left_behind)
    destroy(lake, [lake.ref(report.table) for report in reports])
    with neve.open(rest) as target:
        mirrored.go_to(target)
        mirrored.check()
        mirrored.append(event("U", 6, 3, "e"), event("I", 2, 2, "late"), event("I", 7, 9, "new"))
        for _ in range(2):
            mirrored.merge()
            mirrored.check()
            mirrored.append(event("U", 8, 1, "f"))
