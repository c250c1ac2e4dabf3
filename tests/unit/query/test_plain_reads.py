"""Which statements DuckDB may run by itself, and what it answers; without Spark."""

from contextlib import nullcontext
from datetime import datetime, timezone

import pyarrow as pa
import pytest

import neve
from neve.errors import NotFoundError, SqlError, UnsupportedError
from neve.query.duckdb_engine import run_plain_read
from neve.query.plain_read import NotPlainError
from neve.query.run import run
from neve.query.spark_settings import require_usual_meaning
from neve.query.statement import parse_read
from tests.support.lakes import sqlite_settings


@pytest.fixture(scope="module")
def lake(tmp_path_factory):
    with neve.open(sqlite_settings(tmp_path_factory.mktemp("lake"))) as lake:
        catalog = lake.catalog()
        catalog.create_namespace("ns")
        rows = pa.table(
            {
                "id": pa.array([1, 2], pa.int64()),
                "name": ["a", None],
                "d": [0.0, 2.5],
                "tags": pa.array([["x"], None], pa.list_(pa.string())),
            }
        )
        catalog.create_table("ns.t", rows.schema).append(rows)
        yield lake


def rows_of(answer):
    return [row for batch in answer.batches for row in batch.to_pylist()]


@pytest.mark.parametrize(
    ("statement", "reason"),
    [
        ("INSERT INTO ns.t VALUES (1)", "insert is not a query"),
        ("CREATE TABLE ns.u AS SELECT 1", "create is not a query"),
        ("CALL system.rewrite_data_files('ns.t')", "is not a query"),
        ("SELECT 1; SELECT 2", "several statements"),
        ("SELEC 1", "the parser does not know the statement"),
        ("SELECT * FROM ns.t VERSION AS OF 5", "table with version"),
        ("SELECT /*+ BROADCAST(t) */ * FROM ns.t", "select with hint"),
        ("SELECT * FROM range(5)", "the function range"),
        ("SELECT * FROM t", "a temporary view"),
        ("SELECT * FROM ns.t TABLESAMPLE (5 ROWS)", "table with sample"),
        ("SELECT * FROM ns.t LATERAL VIEW explode(tags) AS tag", "select with laterals"),
        ("SELECT * FROM ns.t a JOIN ns.t b USING (id)", "join with using"),
        ("SELECT * EXCEPT (id) FROM ns.t", "star with except"),
        ("WITH RECURSIVE x AS (SELECT 1) SELECT * FROM x", "with with recursive"),
        ("SELECT round(d, 1) AS r FROM ns.t", "the function round"),
        ("SELECT upper(name) AS u FROM ns.t", "the function upper"),
        ("SELECT nothing_known(id) FROM ns.t", "the function nothing_known"),
        ("SELECT id FROM ns.t WHERE id = '1'", "BIGINT compared with VARCHAR"),
        ("SELECT id FROM ns.t WHERE name = 1", "VARCHAR compared with INTEGER"),
        ("SELECT CAST(name AS INT) AS n FROM ns.t", "CAST from VARCHAR to INTEGER"),
        ("SELECT CAST(d AS INT) AS n FROM ns.t", "CAST from DOUBLE to INTEGER"),
        ("SELECT try_cast(name AS INT) AS n FROM ns.t", "the function try_cast"),
        ("SELECT id DIV 2 FROM ns.t", "intdiv"),
        ("SELECT tags[0] FROM ns.t", "[ ] of other than a map"),
        ("SELECT name LIKE 'a!%' ESCAPE '!' AS l FROM ns.t", "escape"),
        ("SELECT name LIKE 'a\\\\_' AS l FROM ns.t", "a backslash"),
        ("SELECT d, count(*) FROM ns.t GROUP BY d", "floating-point"),
        ("SELECT DISTINCT d FROM ns.t", "floating-point"),
        ("SELECT max(d) FROM ns.t", "max of floating-point"),
        ("SELECT min(d) FILTER (WHERE id = 1) FROM ns.t", "min of floating-point"),
        ("SELECT id FROM ns.t WHERE d > 1", "may be NaN"),
        ("SELECT id FROM ns.t WHERE NOT (1 >= d)", "may be NaN"),
        ("SELECT id FROM ns.t WHERE d * 2 < 1", "may be NaN"),
        ("SELECT id FROM ns.t WHERE d NOT BETWEEN 0 AND 1", "may be NaN"),
        ("SELECT id FROM ns.t WHERE (SELECT d FROM ns.t LIMIT 1) < 1", "may be NaN"),
        ("SELECT id FROM (SELECT id, d > 1 AS more FROM ns.t) s WHERE more", "may be NaN"),
        ("SELECT a.id FROM ns.t a JOIN ns.t b ON a.d = b.d", "may be NaN"),
        ("SELECT a.id FROM ns.t a JOIN ns.t b ON a.d <=> b.d", "may be NaN"),
        ("SELECT id FROM ns.t WHERE id IN (d, 1)", "may be NaN"),
        ("SELECT id FROM ns.t WHERE d = 0", "may be NaN"),
        ("SELECT id FROM ns.t WHERE d NOT IN (1, 2)", "may be NaN"),
        ("SELECT id FROM ns.t WHERE id = 1 + d", "may be NaN"),
        ("SELECT id FROM ns.t WHERE d NOT IN (SELECT d FROM ns.t)", "IN with a query of floating"),
        ("SELECT d FROM ns.t UNION ALL SELECT d FROM ns.t ORDER BY d", "ORDER BY a floating-point"),
        ("SELECT count(*) OVER () AS c FROM ns.t", "window"),
        ("SELECT coalesce(id, 1) FROM ns.t", "a column without an alias"),
        ("SELECT id FROM ns.t WHERE nope = 1", "the name nope, which is no column here"),
        ("SELECT id FROM ns.t a, ns.t b", "the name id, which two relations have"),
        ("SELECT max(id) AS id FROM ns.t GROUP BY name HAVING id > 1", "a column and an alias"),
        ("SELECT id, CASE WHEN id > 1 THEN 'a' ELSE 1 END AS c FROM ns.t", "several types"),
        ("SELECT id FROM ns.t UNION SELECT name FROM ns.t", "several types"),
        ("SELECT id FROM ns.t ORDER BY tags", "ORDER BY a struct"),
        ("SELECT now_at > '1969-12-31' AS a FROM (SELECT current_timestamp() AS now_at) t", "1970"),
        ("SELECT current_timestamp() > '1970-01-01T01:00:00+02:00' AS a", "1970"),
        ("SELECT current_timestamp() > '2024-01-01 10:00:00 Z' AS a", "a text as a time"),
        ("SELECT current_timestamp() > '2024-01-01Z' AS a", "a text as a time"),
        ("SELECT TIMESTAMP '1970-01-02' - INTERVAL 5 DAYS AS t FROM ns.t", "an interval added to"),
        ("SELECT id IN (SELECT id FROM ns.t) AS i FROM ns.t", "elsewhere than in WHERE"),
        ("SELECT 1 FROM ns.t WHERE NOT (id > 1 AND id IN (SELECT id FROM ns.t))", "than in WHERE"),
        ("SELECT 1 FROM ns.t WHERE (id IN (SELECT id FROM ns.t)) IS NULL", "than in WHERE"),
        ("SELECT current_timestamp() > '2024-01-01 24:00:00' AS a", "a text as a time"),
        ("SELECT date_trunc('D', current_timestamp()) AS a", "the function date_trunc"),
        ("SELECT 2 AS a, name, count(*) AS c FROM ns.t GROUP BY a", "GROUP BY a number"),
        ("SELECT 2 AS a, name, count(*) AS c FROM ns.t GROUP BY 1", "GROUP BY a number"),
        ("SELECT DISTINCT id FROM ns.t ORDER BY name", "ORDER BY other than"),
        ("SELECT 1e400 AS a", "the number 1e400"),
        ("SELECT id FROM ns.t LIMIT 1 + 1", "LIMIT with other than a number"),
    ],
)
def test_what_may_mean_something_else_in_spark(lake, statement, reason):
    with pytest.raises(NotPlainError) as caught:
        rows_of(run_plain_read(lake, parse_read(statement)))
    assert reason in str(caught.value)


def test_the_automatic_choice_takes_duckdb(lake):
    answer = run(lake, "SELECT ID, count(*) FROM ns.t GROUP BY id ORDER BY id -- a comment\n;")
    assert answer.engine == "duckdb"
    assert rows_of(answer) == [{"ID": 1, "count(1)": 1}, {"ID": 2, "count(1)": 1}]


def test_names_of_ctes_are_no_tables(lake):
    query = "WITH `table` AS (SELECT 77 AS id) SELECT id FROM ns.t WHERE id < 3 ORDER BY id"
    assert rows_of(run(lake, query)) == [{"id": 1}, {"id": 2}]


def test_the_smallest_int_is_an_int(lake):
    answer = run(lake, "SELECT -2147483648 AS x")
    assert (answer.engine, answer.schema.field("x").type) == ("duckdb", pa.int32())


@pytest.mark.parametrize(
    ("key", "value", "plain"),
    [
        ("spark.sql.session.timeZone", "Asia/Tokyo", False),
        ("spark.sql.session.timeZone", "UTC", True),
        ("spark.sql.caseSensitive", "true", False),
        ("spark.sql.defaultCatalog", "archive", False),
        ("spark.wap.branch", "trial", False),
        ("spark.sql.shuffle.partitions", "2", True),
        ("spark.driver.memory", "1g", True),
    ],
)
def test_settings_that_change_what_a_statement_means_are_for_spark(key, value, plain):
    with nullcontext() if plain else pytest.raises(NotPlainError, match=key):
        require_usual_meaning({key: value})


def test_duckdb_alone_takes_every_query_and_refuses_the_rest(lake):
    answer = run(
        lake, "SELECT round(t.d, 1) AS r, sum(ns.t.id) AS s FROM ns.t GROUP BY 1", "duckdb"
    )
    assert sorted(row["r"] for row in rows_of(answer)) == [0.0, 2.5]
    assert answer.schema.field("s").type == pa.int64()
    with pytest.raises(UnsupportedError) as caught:
        run(lake, "DELETE FROM ns.t", "duckdb")
    assert caught.value.hint == "use --engine spark"
    with pytest.raises(NotFoundError) as missing:
        run(lake, "SELECT * FROM ns.tt", "duckdb")
    assert missing.value.hint == "did you mean ns.t?"
    for other in ("tt", "ns.t.snapshots"):
        with pytest.raises(NotFoundError, match="does not exist"):
            run(lake, f"SELECT * FROM {other}", "duckdb")
    with pytest.raises(SqlError, match=r"^DuckDB: .*nope"):
        run(lake, "SELECT nope FROM ns.t", "duckdb")


@pytest.mark.parametrize(
    ("clause", "said"),
    [
        ("VERSION AS OF 1", "t at another version than the current one"),
        ("VERSION AS OF '2026-11-01T00:00:00Z'", "t at another version than the current one"),
        ("TIMESTAMP AS OF '2026-11-01'", "t at another version than the current one"),
        ("VERSION SINCE 1", "the changes of a table"),
        ("VERSION BETWEEN 1 AND 2 WITH (mode = 'net')", "the changes of a table"),
        ("TABLESAMPLE (1 ROWS)", "table with sample"),
    ],
)
def test_duckdb_alone_loses_no_part_of_a_table(lake, clause, said):
    with pytest.raises(UnsupportedError, match=f"DuckDB does not read {said}") as caught:
        run(lake, f"SELECT * FROM ns.t {clause}", "duckdb")
    assert caught.value.hint == "use --engine spark"


def test_a_table_that_does_not_exist_is_told_without_spark(lake):
    with pytest.raises(NotFoundError) as missing:
        run(lake, "SELECT * FROM ns.tt")
    assert missing.value.hint == "did you mean ns.t?"
    for other in ("ns.t.snapshots", "parquet.`/files`", "global_temp.view", "archive.ns.t"):
        with pytest.raises(NotPlainError, match="which is no table"):
            run_plain_read(lake, parse_read(f"SELECT * FROM {other}"))


def test_what_spark_raises_is_raised(lake):
    for expression in ("id / d", "sum(id + 9223372036854775806)", "id * 9223372036854775807"):
        with pytest.raises(SqlError):
            rows_of(run_plain_read(lake, parse_read(f"SELECT {expression} AS x FROM ns.t")))


def test_each_statement_reads_the_version_that_the_catalog_names_then(lake):
    query = "SELECT count(*) AS rows FROM ns.t"
    before = run(lake, query)
    table = lake.catalog().load_table("ns.t")
    table.append(table.scan(limit=1).to_arrow())
    assert rows_of(before) == [{"rows": 2}]
    assert rows_of(run(lake, query)) == [{"rows": 3}]


def test_rows_before_1970_in_partitions_by_time(lake):
    """DuckDB looks for them in the wrong partition."""
    times = [datetime(year, 12, 31, 23, 59, 59, 5, timezone.utc) for year in (1969, 2024)]
    rows = pa.table({"t": pa.array(times, pa.timestamp("us", "UTC")), "n": [1.5, 2.5]})
    table = lake.catalog().create_table("ns.days", rows.schema)
    with table.update_spec() as update:
        update.add_field("t", "day")
    table.append(rows)
    statement = (
        "SELECT round(n, 1) AS n FROM ns.days WHERE t = TIMESTAMP '1969-12-31 23:59:59.000005'"
    )
    with pytest.raises(NotPlainError, match="before 1970"):
        run_plain_read(lake, parse_read(statement.replace("round(n, 1)", "n")))
    assert rows_of(run(lake, statement, "duckdb")) == [{"n": 1.5}]
    newer = run(lake, "SELECT n FROM ns.days WHERE t > '2024-01-01' AND t < current_timestamp()")
    assert (newer.engine, rows_of(newer)) == ("duckdb", [{"n": 2.5}])


def test_only_as_much_is_read_as_is_wanted(lake):
    """Of rows without end, the first come at once; closing the answer cancels the rest."""
    answer = run(lake, "SELECT range AS n FROM range(1000000000000)", "duckdb")
    assert next(answer.batches).column(0)[0].as_py() == 0
    answer.close()
    assert next(answer.batches, None) is None


def test_rows_are_counted_without_reading_them(lake):
    answer = run(lake, "SELECT * FROM ns.t WHERE id > 1")
    answer.close()
    assert answer.count() == 1
