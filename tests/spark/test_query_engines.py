"""A read that DuckDB runs by itself has the answer that Spark gives: names, types, values."""

import math
import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.types import UUIDType

import neve
from neve.errors import UnsupportedError
from neve.query.run import run
from neve.signals import Signal
from tests.support.consolidation import Bench
from tests.support.lakes import sqlite_settings

ROOT = Path(__file__).parents[2]
DOCUMENTED = re.compile(r"```sql\n(.*?)```|(?:neve sql |query\()\"(SELECT[^\"]*)\"", re.DOTALL)

# Each stands in one SELECT over the table of all types, without an alias where Spark's own name of
# the column is known.
EXPRESSIONS = """
id | ID | t.id | bo | l | f | d | de | de38 | da | ts | tn | s | bi | li | ma | st | u
1 | 'x' | 3000000000 | true | -1 | -id
id + 1 | l * 1 AS e1 | id * 2.5e0 AS a1 | id / 2 | id / 2e0 AS a2 | id / (id + 1) | id % 2
id = 1 | id <> 1 | id < l | de >= 1.25 AS a5 | de > 1
de < de38 | l > id | s = ' é𝄞 ' | id <=> 1 | bi > bi | u = u
ts > '2024-10-04 01:02:03.123455' AS a7 | tn <= TIMESTAMP_NTZ '2024-02-29 12:00:00.000001' AS a8
ts >= TIMESTAMP '2024-10-04T03:02:03.123455+02:00' AS e2 | ts < '2024-10-04T01:02:03Z' AS e3
da = '9999-12-31' AS a9 | ts >= TIMESTAMP '1970-01-01' AS b1 | da < DATE '2000-01-01' AS b2
bo AND id = 1 | bo OR id = 3 | NOT bo | id IS NULL | l IS NOT NULL | NOT (id > 1 AND bo)
id BETWEEN 1 AND 2 | id NOT BETWEEN 1 AND 2 | id IN (1, 2) | id NOT IN (1, 2) | s IN ('', 'x')
s LIKE '%é%' | s LIKE '_é_ ' | s NOT LIKE 'a%'
CASE WHEN id > 1 THEN 'a' ELSE 'b' END | CASE WHEN id = 1 THEN id WHEN id = 2 THEN l END AS b3
if(id > 1, 1, 2) | coalesce(l, id) AS b5 | nvl(s, '-') AS b6
cast(id AS STRING) | cast(id AS BIGINT) + 1 | cast(id AS DOUBLE) AS b7 | cast(da AS STRING) AS b8
cast(ts AS DATE) AS b9 | cast(tn AS DATE) AS c1 | date(ts) AS c2 | CAST('2024-02-29' AS DATE) AS c3
date_trunc('hour', ts) AS c4 | date_trunc('WEEK', ts) AS c5 | date_trunc('year', ts) AS c6
date_trunc('quarter', ts) AS c7 | year(ts) | month(ts) | day(ts) | hour(ts) | minute(ts) | year(tn)
ts - INTERVAL 1 HOUR AS c8 | tn + INTERVAL '90' MINUTES AS c9 | ts - INTERVAL 3 DAYS AS d1
ma['k'] | ma['nothing'] | st.x | t.st.x | st.x + 1 | st.N AS d2 | st.n IS NULL
length(s) AS d3 | s || '!' AS d4 | "double quotes" | 5L AS d5
"""
AGGREGATES = """
count(*) | count(id) | count(l) | count(DISTINCT bo) | sum(id) | sum(d) | sum(f) AS a1 | sum(de)
sum(de38) | avg(id) | avg(l) | avg(d) | avg(f) | min(id) | max(l) | min(ts) | max(tn) | min(s)
max(da) | min(bi) | max(de) | min(u) | max(bo) | count_if(id > 1) | max(l) FILTER (WHERE id = 2)
count(*) FILTER (WHERE bo) | sum(id) / count(*) | max(id) - min(id) | count(*) > 2 | sum(id + 1)
"""
# Over numbers that may be NaN, infinite or -0.0, in files of several writers: conditions, values
# and aggregates of the same meaning in both engines.
FLOAT_CONDITIONS = """
d IS NULL | NOT (d IS NULL) | id > 2.5e0 | id / 2 >= 2.5e0
"""
FLOAT_VALUES = """
d | f | -d | d * 10 AS m | d * -1 AS n | d - d AS z | d + 1e308 AS p
d / 2 | CAST(f AS DOUBLE) AS c
coalesce(d, e) AS a | CASE WHEN id > 4 THEN d ELSE e END AS b | if(id > 4, d, -e) AS i
"""
FLOAT_AGGREGATES = """
count(d) | count(DISTINCT d) | count(DISTINCT f) | sum(d) | avg(d) | sum(f)
avg(f) | count_if(id > 2.5e0) AS c
"""
QUERIES = """
SELECT * FROM {ns}.types
SELECT id, s FROM {ns}.types ORDER BY s, id DESC
SELECT id, l FROM {ns}.types ORDER BY l DESC
SELECT id AS n, -id AS id FROM {ns}.types ORDER BY id
SELECT id, d FROM {ns}.types ORDER BY d NULLS LAST, 1 LIMIT 2 OFFSET 1
SELECT d, id FROM {ns}.floats ORDER BY d, id
SELECT id, f FROM {ns}.floats ORDER BY 2 DESC, id LIMIT 3
SELECT id % 3 AS part, avg(d) FROM {ns}.floats GROUP BY part HAVING avg(d) > 1 ORDER BY avg(d), part
SELECT bo, count(*) AS c FROM {ns}.types GROUP BY bo HAVING c > 0 ORDER BY 1
SELECT bo AS answer, sum(id) FROM {ns}.types GROUP BY answer ORDER BY sum(id) DESC, answer
SELECT bo, id % 2 AS odd, count(*) FROM {ns}.types GROUP BY ALL ORDER BY bo, odd
SELECT -id AS bo, count(*) AS id FROM {ns}.types GROUP BY id, bo ORDER BY bo
SELECT DISTINCT bo FROM {ns}.types ORDER BY bo
SELECT count(*) FROM {ns}.types WHERE id > 100
SELECT sum(l), count_if(bo), max(s), avg(id) FROM {ns}.types WHERE id > 100
SELECT a.id, b.id FROM {ns}.types a JOIN {ns}.types b ON a.id = b.id + 1 ORDER BY 1
SELECT * FROM {ns}.types a LEFT JOIN (SELECT id AS other FROM {ns}.types WHERE bo) b ON a.id = other
SELECT a.id, b.l FROM {ns}.types a FULL OUTER JOIN {ns}.types b ON a.id = b.id - 1 ORDER BY 1, 2
SELECT a.id x, b.id y FROM {ns}.types a, {ns}.types b WHERE a.id < b.id ORDER BY x, y
WITH a AS (SELECT id FROM {ns}.types), b AS (SELECT -id AS c FROM a) SELECT id, c FROM a, b
SELECT id FROM {ns}.types WHERE id IN (SELECT id + 1 FROM {ns}.types) ORDER BY id
SELECT id FROM {ns}.types WHERE bo OR id IN (SELECT id + 1 FROM {ns}.types) ORDER BY id
SELECT id FROM {ns}.types WHERE id > 0 AND id NOT IN (SELECT id - 1 FROM {ns}.types) ORDER BY id
SELECT CAST(da AS STRING) AS day FROM {ns}.far_days
SELECT id FROM {ns}.types a WHERE EXISTS (SELECT 1 FROM {ns}.types b WHERE b.id > a.id) ORDER BY id
SELECT id, (SELECT max(l) FROM {ns}.types) AS most FROM {ns}.types ORDER BY id
SELECT id FROM {ns}.types UNION ALL SELECT id FROM {ns}.types ORDER BY id
SELECT bo FROM {ns}.types UNION SELECT bo FROM {ns}.types ORDER BY bo
SELECT id FROM {ns}.types EXCEPT SELECT id FROM {ns}.types WHERE bo ORDER BY id
SELECT id FROM {ns}.types INTERSECT SELECT id FROM {ns}.types WHERE bo
SELECT * FROM {ns}.changed
SELECT id, renamed, st.xx FROM {ns}.changed WHERE id < 5 ORDER BY id
SELECT * FROM {ns}.deleted2
SELECT * FROM {ns}.deleted3
SELECT * FROM {ns}.equality
SELECT * FROM {ns}.nested.`odd name`
SELECT `MIXED case` FROM lake.{ns}.nested.`odd name`
SELECT 1
"""


@pytest.fixture(scope="module")
def lake(embedded_lake, tmp_path_factory):
    """A lake of its own on the Spark of all: its tables have the names of the documentation."""
    directory = tmp_path_factory.mktemp("engines")
    with neve.open(sqlite_settings(directory)) as lake:
        make_tables(lake, directory)
        yield lake


def make_tables(lake, directory):
    merge_on_read = "'write.delete.mode'='merge-on-read', 'write.update.mode'='merge-on-read'"
    lake.sql("CREATE NAMESPACE engines")
    lake.sql("CREATE NAMESPACE engines.nested")
    lake.sql(
        "CREATE TABLE engines.types (id INT, bo BOOLEAN, l BIGINT, f FLOAT, d DOUBLE, "
        "de DECIMAL(9,2), de38 DECIMAL(38,10), da DATE, ts TIMESTAMP, tn TIMESTAMP_NTZ, s STRING, "
        "bi BINARY, li ARRAY<STRING>, ma MAP<STRING, BIGINT>, "
        "st STRUCT<x: BIGINT, n: ARRAY<STRUCT<a: INT>>>) USING iceberg"
    )
    with lake.load(lake.ref("engines.types")).update_schema() as update:
        update.add_column("u", UUIDType())
    lake.sql(
        "INSERT INTO engines.types VALUES (1, true, 9223372036854775807, float('NaN'), "
        "double('NaN'), 1.25, 1234567890123456789012345678.0123456789, DATE '1582-10-04', "
        "TIMESTAMP '1582-10-04 01:02:03.123456Z', TIMESTAMP_NTZ '0001-01-01 00:00:00', ' é𝄞 ', "
        "X'00ff', array('a', NULL), map('k', 1, 'j', NULL), "
        "named_struct('x', 1, 'n', array(named_struct('a', 1))), "
        "'f79c3e09-677c-4bbd-a479-3f349cb785e7'), "
        "(2, false, -9223372036854775808, float('0.1'), double('-0.0'), -1.25, -1.5, "
        "DATE '9999-12-31', TIMESTAMP '9999-12-31 23:59:59.999999Z', "
        "TIMESTAMP_NTZ '2024-02-29 12:00:00.000001', '', X'', array(), map(), "
        "named_struct('x', NULL, 'n', NULL), '00000000-0000-0000-0000-000000000001'), "
        "(3, NULL, NULL, NULL, 0.1" + ", NULL" * 11 + ")"
    )
    for version in (2, 3):
        lake.sql(
            f"CREATE TABLE engines.deleted{version} (id BIGINT, name STRING) USING iceberg "
            f"TBLPROPERTIES ('format-version'='{version}', {merge_on_read})"
        )
        numbers = "SELECT id, concat('n', id) FROM range(0, 90, 1, 1)"
        lake.sql(f"INSERT INTO engines.deleted{version} {numbers}")
        lake.sql(f"DELETE FROM engines.deleted{version} WHERE id % 3 = 0")
        lake.sql(f"UPDATE engines.deleted{version} SET name = 'x' WHERE id = 7")
    lake.sql("CREATE TABLE engines.far_days USING iceberg AS SELECT DATE '10000-01-01' AS da")
    make_changed_table(lake)
    make_float_table(lake)
    lake.sql(
        "CREATE TABLE engines.nested.`odd name` (`Mixed Case` BIGINT, `a.b` STRING) USING iceberg"
    )
    lake.sql("INSERT INTO engines.nested.`odd name` VALUES (1, 'x')")
    lake.sql(
        "CREATE TABLE engines.equality USING iceberg AS SELECT id, id * 2 AS twice FROM range(9)"
    )
    delete_by_equality(lake, "engines.equality", directory / "deletes.parquet", 2, 3)


def make_float_table(lake):
    """Write NaN by Spark, which then has no statistics, and by PyIceberg, whose leave it out."""
    nan, infinite = math.nan, math.inf
    files = [
        [(1, infinite, infinite, 1.5), (2, -infinite, -infinite, 1.5)],
        [(3, nan, nan, 1.5), (4, 1.5, 1.5, nan)],
        [(5, nan, nan, nan), (6, nan, nan, 0.0)],
        [(7, 0.0, 0.0, -0.0), (8, -0.0, -0.0, 0.0), (9, None, None, None)],
        [(10, 1.7e308, 3.0e38, 1.0), (11, 5e-324, 1e-45, 2.0)],
    ]
    names = ("id", "d", "f", "e")
    lake.sql("CREATE TABLE engines.floats (id INT, d DOUBLE, f FLOAT, e DOUBLE) USING iceberg")
    for rows in files:
        written = ", ".join(
            f"({number}, {', '.join(_written(each) for each in row)})" for number, *row in rows
        )
        lake.sql(f"INSERT INTO engines.floats SELECT /*+ COALESCE(1) */ * FROM VALUES {written}")
    table = lake.load(lake.ref("engines.floats"))
    for rows in files:
        columns = dict(zip(names, zip(*rows, strict=True), strict=True))
        columns["id"] = [number + 20 for number in columns["id"]]
        table.append(pa.table(columns, schema=table.schema().as_arrow()))


def _written(number):
    return "NULL" if number is None else f"double('{number}')"


def make_changed_table(lake):
    """Change everything about a table that can change, with rows from before and after."""
    lake.sql(
        "CREATE TABLE engines.changed (id INT, a STRING, b FLOAT, c DECIMAL(5,2), old STRING, "
        "st STRUCT<x: INT, y: STRING>) USING iceberg PARTITIONED BY (id) "
        "TBLPROPERTIES ('format-version'='2', 'write.delete.mode'='merge-on-read')"
    )
    lake.sql(
        "INSERT INTO engines.changed VALUES (1, 'a', 1.5, 1.25, 'g', "
        "named_struct('x', 1, 'y', 'q')), (2, NULL, 2.5, 2.5, 'h', NULL)"
    )
    for change in (
        "RENAME COLUMN a TO renamed",
        "DROP COLUMN old",
        "ADD COLUMN a BIGINT",
        "ADD COLUMN old DOUBLE FIRST",
        "ALTER COLUMN id TYPE BIGINT",
        "ALTER COLUMN b TYPE DOUBLE",
        "ALTER COLUMN c TYPE DECIMAL(9,2)",
        "ADD COLUMN st.z STRING",
        "RENAME COLUMN st.x TO xx",
        "DROP PARTITION FIELD id",
        "ADD PARTITION FIELD bucket(4, id)",
    ):
        lake.sql(f"ALTER TABLE engines.changed {change}")
    lake.sql(
        "INSERT INTO engines.changed (old, id, renamed, b, c, st, a) VALUES (0.5, 10000000000, "
        "'new', 0.1, 1234567.89, named_struct('xx', 5, 'y', 'w', 'z', 'zz'), 77)"
    )
    lake.sql("DELETE FROM engines.changed WHERE id = 2")


def delete_by_equality(lake, name, path, *keys):
    """Delete keys as Flink's upserts do: by a file with their values."""
    field = pa.field("id", pa.int64(), metadata={"PARQUET:field_id": "1"})
    pq.write_table(pa.table([pa.array(keys, pa.int64())], schema=pa.schema([field])), path)
    spark = lake.spark
    gateway, iceberg = spark.sparkContext._gateway, spark._jvm.org.apache.iceberg
    table = iceberg.spark.Spark3Util.loadIcebergTable(spark._jsparkSession, f"lake.{name}")
    ids = gateway.new_array(gateway.jvm.int, 1)
    ids[0] = 1
    file = (
        iceberg.FileMetadata.deleteFileBuilder(table.spec())
        .ofEqualityDeletes(ids)
        .withPath(path.as_uri())
        .withFormat("parquet")
        .withFileSizeInBytes(path.stat().st_size)
        .withRecordCount(len(keys))
        .build()
    )
    table.newRowDelta().addDeletes(file).commit()


def answer_of(lake, statement, engine):
    """Return engine, types by name, and rows: in order, if the statement says one."""
    answer = run(lake, statement, engine)
    rows = [
        tuple(repr(column[number].as_py()) for column in batch.columns)
        for batch in answer.batches
        for number in range(batch.num_rows)
    ]
    ordered = "ORDER BY" in statement
    types = [(field.name, field.type) for field in answer.schema]
    return answer.engine, types, rows if ordered else sorted(rows)


def assert_same(lake, statement):
    engine, types, rows = answer_of(lake, statement, "auto")
    assert engine == "duckdb", statement
    _, expected_types, expected_rows = answer_of(lake, statement, "spark")
    assert types == expected_types, statement
    assert rows == expected_rows, statement


def listed(text):
    return [part.strip() for line in text.strip().splitlines() for part in line.split(" | ")]


@pytest.mark.parametrize("expressions", [EXPRESSIONS, AGGREGATES], ids=["of a row", "aggregates"])
def test_expressions(lake, expressions):
    assert_same(lake, f"SELECT {', '.join(listed(expressions))} FROM engines.types t")


def test_floats(lake):
    assert_same(lake, f"SELECT id, {', '.join(listed(FLOAT_VALUES))} FROM engines.floats")
    conditions = listed(FLOAT_CONDITIONS)
    matching = (
        f"SELECT {place} AS place, id FROM engines.floats WHERE {condition}"
        for place, condition in enumerate(conditions)
    )
    assert_same(lake, " UNION ALL ".join(matching))
    parts = ("id IN (1, 2)", "id IN (7, 28)", "id = 8", "id IN (10, 30)", "id > 0")
    aggregated = (
        f"SELECT {', '.join(listed(FLOAT_AGGREGATES))} FROM engines.floats WHERE {part}"
        for part in parts
    )
    assert_same(lake, " UNION ALL ".join(aggregated))


@pytest.mark.parametrize("statement", QUERIES.strip().splitlines())
def test_queries(lake, statement):
    assert_same(lake, statement.format(ns="engines"))


def test_what_is_no_table_is_read_by_spark(lake):
    lake.sql("CREATE VIEW engines.seen AS SELECT max(id) AS id FROM engines.types")
    lake.sql(
        "CREATE TABLE engines.variants USING iceberg TBLPROPERTIES ('format-version'='3') "
        "AS SELECT 3 AS id, parse_json('{}') AS v"
    )
    lake.sql(
        "CREATE TABLE engines.orc USING iceberg TBLPROPERTIES ('write.format.default'='orc') "
        "AS SELECT 3 AS id"
    )
    for name in ("seen", "variants", "orc", "types.history"):
        columns = "count(*) + 2" if name == "types.history" else "id"
        engine, _, rows = answer_of(lake, f"SELECT {columns} FROM engines.{name}", "auto")
        assert (engine, rows) == ("spark", [("3",)]), name


def test_deletion_vectors_of_several_partition_specs_are_read_by_spark(lake):
    lake.sql(
        "CREATE TABLE engines.specs (id BIGINT, part STRING) USING iceberg PARTITIONED BY (part) "
        "TBLPROPERTIES ('format-version'='3', 'write.delete.mode'='merge-on-read')"
    )
    ids = "SELECT id FROM engines.specs"
    for change in ("ADD PARTITION FIELD bucket(2, id)", "DROP PARTITION FIELD part"):
        lake.sql("INSERT INTO engines.specs SELECT id, concat('p', id % 3) FROM range(80)")
        lake.sql(f"ALTER TABLE engines.specs {change}")
    assert_same(lake, ids)

    lake.sql("DELETE FROM engines.specs WHERE id % 5 = 0")
    answered_by, _, rows = answer_of(lake, ids, "auto")
    assert answered_by == "spark"
    assert len(rows) == 128
    with pytest.raises(UnsupportedError, match=r"engines\.specs: the partitioning was changed"):
        run(lake, ids, "duckdb")

    # As docs/query-from-anywhere.md advises.
    lake.sql(
        "CALL lake.system.rewrite_data_files(table => 'engines.specs', "
        "options => map('rewrite-all', 'true'))"
    )
    assert_same(lake, ids)


def test_a_session_that_was_changed_answers_itself(lake):
    statement = "SELECT hour(ts) AS h FROM engines.types WHERE id = 1"
    for change, undo in (
        ("SET TIME ZONE 'Asia/Tokyo'", "SET TIME ZONE 'UTC'"),
        ("USE spark_catalog", "USE lake"),
    ):
        run(lake, change)
        try:
            changed = run(lake, statement.replace("engines.", "lake.engines.")).engine
        finally:
            run(lake, undo)
        assert (changed, run(lake, statement).engine) == ("spark", "duckdb"), change


def documented_queries():
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    found = [
        block or call for page in pages for block, call in DOCUMENTED.findall(page.read_text())
    ]
    return [text for text in found if re.match(r"(--[^\n]*\n)*(SELECT|WITH)", text)]


def test_documented_queries(lake, tmp_path):
    bench = Bench(lake, tmp_path)
    bench.send(Signal.LOGS, "a", "b")
    bench.send(Signal.TRACES, "a")
    bench.send_gauge_and_sum("shop.orders")
    worker = bench.worker()
    worker.run_once()
    worker.ledger.write()
    lake.sql(
        "CREATE TABLE otel.traces_rejected AS SELECT *, 'late' AS rejected_by FROM otel.traces"
    )
    lake.sql("ALTER TABLE otel.traces ADD COLUMN order_total DOUBLE")  # the tutorial promotes it
    lake.sql("CREATE NAMESPACE shop")
    for table in ("orders", "orders_changes", "orders_rejected", "customers"):
        values = "SELECT 1 AS id, 'Ada' AS name, 'Berlin' AS city, 5 AS lsn, 'too late' AS reason"
        lake.sql(f"CREATE TABLE shop.{table} AS {values}")
    engines = []
    for statement in documented_queries():
        if "VERSION AS OF" in statement:
            continue
        engine, types, rows = answer_of(lake, statement, "auto")
        engines.append(engine)
        if engine == "duckdb":
            assert (engine, types, rows) == ("duckdb", *answer_of(lake, statement, "spark")[1:])
    assert engines.count("duckdb") >= 7
