"""Lakes beside each other, lakes without a catalog, and what a closed lake leaves behind."""

from __future__ import annotations

import psycopg2
import pyarrow.parquet as pq
import pytest

import neve
from neve.errors import UnsupportedError
from neve.lake.session import SPARK
from tests.support.gates import BearerToken
from tests.support.lakes import TOKEN, plain_settings, postgres_settings, rest_settings
from tests.support.proxy import running_proxy
from tests.support.readers import by_all, read_with_all, read_with_spark
from tests.support.wait import until


def test_deletion_vectors_are_read_by_every_engine(embedded_lake):
    lake = embedded_lake
    lake.sql("CREATE NAMESPACE vectors")
    lake.sql(
        "CREATE TABLE vectors.mirror (id BIGINT, name STRING) USING iceberg TBLPROPERTIES ("
        "'format-version' = '3', 'write.delete.mode' = 'merge-on-read', "
        "'write.merge.mode' = 'merge-on-read')"
    )
    lake.sql("INSERT INTO vectors.mirror SELECT id, 'old' FROM range(0, 6, 1, 1)")
    lake.sql("DELETE FROM vectors.mirror WHERE id = 0")
    lake.sql(
        "MERGE INTO vectors.mirror t USING (SELECT * FROM VALUES (1, 'gone'), (2, 'new'), "
        "(9, 'new') AS c (id, name)) c ON t.id = c.id WHEN MATCHED AND c.name = 'gone' THEN DELETE "
        "WHEN MATCHED THEN UPDATE SET name = c.name WHEN NOT MATCHED THEN INSERT *"
    )
    formats = lake.query("SELECT DISTINCT file_format FROM vectors.mirror.delete_files")
    assert formats["file_format"].to_pylist() == ["PUFFIN"]
    names = {2: "new", 3: "old", 4: "old", 5: "old", 9: "new"}
    expected = [{"id": number, "name": name} for number, name in names.items()]
    assert read_with_all(lake, "vectors.mirror") == by_all(expected)
    assert lake.table("vectors.mirror").rows == len(expected)


def test_a_commit_that_comes_too_late_is_retried(embedded_lake, rest_lake, rest_catalog, s3):
    """Spark's commit meets another one that came in after Spark had read the table."""
    rest_lake.catalog().create_namespace("late")
    rest_lake.sql("CREATE TABLE late.events (id BIGINT, name STRING) USING iceberg")
    statuses = []

    def commit_first(request, forward):
        if request.method == "POST" and request.path.endswith("/tables/events"):
            if not statuses:
                rest_lake.sql("INSERT INTO late.events VALUES (1, 'first')")
            statuses.append(forward(request))
            return statuses[-1]
        return forward(request)

    with (
        running_proxy(rest_catalog.port, [BearerToken(TOKEN), commit_first]) as proxy,
        neve.open(rest_settings(proxy.uri, s3, token=TOKEN)) as lake,
    ):
        lake.sql("INSERT INTO late.events VALUES (2, 'second')")
    assert [answer.status for answer in statuses] == [409, 200]
    expected = [{"id": 1, "name": "first"}, {"id": 2, "name": "second"}]
    assert read_with_spark(rest_lake, "late.events") == expected


def test_without_a_catalog_there_is_plain_parquet(embedded_lake, tmp_path):
    with neve.open(plain_settings(tmp_path)) as lake:
        for call in (lake.catalog, lake.tables, lambda: lake.table("some.table")):
            with pytest.raises(UnsupportedError, match=r"catalog\.type is none") as refusal:
                call()
            assert "sqlite" in refusal.value.hint
        location = f"{lake.profile.warehouse}/numbers"
        lake.spark.range(10).write.parquet(location)
        assert lake.query(f"SELECT sum(id) AS total FROM parquet.`{location}`").to_pylist() == [
            {"total": 45}
        ]
    assert pq.read_table(tmp_path / "warehouse" / "numbers").num_rows == 10


def test_a_closed_lake_leaves_nothing_open(embedded_lake, postgres, s3):
    def connections():
        with psycopg2.connect(postgres.uri()) as connection, connection.cursor() as cursor:
            cursor.execute(
                "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend' "
                "AND pid <> pg_backend_pid()"
            )
            found = cursor.fetchone()[0]
        connection.close()
        return found

    users, before = SPARK.users, connections()
    with neve.open(postgres_settings(postgres, s3)) as lake:
        lake.query("SHOW NAMESPACES")
        assert SPARK.users == users + 1
        assert connections() > before
    assert SPARK.users == users
    until(lambda: connections() == before)
    assert embedded_lake.query("SELECT 1 AS one").num_rows == 1
