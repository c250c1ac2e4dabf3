"""`neve sql` and `lake.sql` on the embedded lake, in this process: answers and refusals."""

import io
import json

import pytest

import neve
from neve.cli.app import run
from neve.errors import CatalogError, NotFoundError, SqlError, StorageError
from neve.lake.jvm.arrow_stream import read_partition, telling_of_end
from neve.query.spark import run_on_spark
from tests.support.lakes import sqlite_settings
from tests.support.wait import until


@pytest.fixture(scope="module")
def lake(embedded_lake):
    embedded_lake.sql("CREATE NAMESPACE IF NOT EXISTS sql_tests")
    embedded_lake.sql("CREATE TABLE sql_tests.numbers AS SELECT id, id * 2 AS twice FROM range(5)")
    yield embedded_lake
    embedded_lake.sql("DROP TABLE sql_tests.numbers PURGE")
    embedded_lake.sql("DROP NAMESPACE sql_tests")


@pytest.fixture
def command(lake, monkeypatch):
    """Run the command line against the lake of these tests, with its JVM."""
    monkeypatch.setenv("NEVE_CATALOG__URI", lake.settings.catalog.uri)
    monkeypatch.setenv("NEVE_CATALOG__WAREHOUSE", lake.settings.catalog.warehouse)
    monkeypatch.setenv("NEVE_SPARK__MASTER", lake.settings.spark.master)
    return run


def test_two_part_names_and_procedures_mean_the_configured_catalog(lake):
    assert lake.query("SELECT sum(twice) AS s FROM sql_tests.numbers").to_pylist() == [{"s": 20}]
    (answer,) = lake.query("CALL system.rewrite_data_files('sql_tests.numbers')").to_pylist()
    assert answer["failed_data_files_count"] == 0


@pytest.mark.parametrize(
    ("statement", "kind", "said"),
    [
        ("SELEC 1", SqlError, "Syntax error at or near 'SELEC'"),
        ("SELECT nope FROM sql_tests.numbers", SqlError, "Did you mean one of the following?"),
        ("SELECT * FROM sql_tests.number", NotFoundError, "sql_tests.number does not exist"),
        ("SELECT * FROM nowhere.numbers", NotFoundError, "nowhere.numbers does not exist"),
        ("SELECT 1 / (id - id) FROM sql_tests.numbers", SqlError, "Division by zero"),
        ("SELECT raise_error('boom')", SqlError, "boom"),
        ("CREATE TABLE nowhere.t (id INT) USING iceberg", NotFoundError, "Namespace nowhere"),
        ("CREATE NAMESPACE sql_tests", SqlError, "already exists"),
    ],
)
def test_refusals_are_sparks_words_on_one_line_without_java(lake, statement, kind, said):
    with pytest.raises(kind) as caught:
        list(run_on_spark(lake, statement).batches)
    assert said in caught.value.message
    assert "\n" not in caught.value.message
    assert "org.apache" not in caught.value.message
    assert "\tat " not in caught.value.message


def test_a_missing_table_is_answered_with_near_names(lake):
    with pytest.raises(NotFoundError) as caught:
        lake.query("SELECT * FROM sql_tests.number")
    assert caught.value.hint == "did you mean sql_tests.numbers?"


def test_rows_come_in_order_and_closing_the_answer_cancels_the_query(lake):
    statement = "SELECT id, id % 7 AS rest FROM range(0, 200000, 1, 4) ORDER BY id DESC"
    answer = run_on_spark(lake, statement)
    ids = [number for batch in answer.batches for number in batch["id"].to_pylist()]
    assert ids == list(range(199_999, -1, -1))
    assert answer.count() == 200_000
    # The second partition is computed in advance, and takes ten minutes.
    sleep = "reflect('java.lang.Thread', 'sleep', 600000L)"
    slow = f"SELECT id, CASE WHEN id = 1 THEN {sleep} END FROM range(0, 2, 1, 2)"
    answer = run_on_spark(lake, slow)
    assert next(answer.batches)["id"].to_pylist() == [0]
    answer.close()
    tracker = lake.spark.sparkContext.statusTracker()
    until(lambda: not tracker.getActiveJobsIds())


@pytest.mark.parametrize("received", [b"", b"\0\0", b"\0\0\0\x09abc"])
def test_a_jvm_that_ends_between_rows_is_told(lake, received):
    with (
        pytest.raises(CatalogError, match="Java has ended before the last row"),
        lake.explaining(),
        telling_of_end(),
    ):
        list(read_partition(io.BytesIO(received)))


def test_the_first_rows_cost_no_more_than_they_must(lake):
    endless = "SELECT id FROM range(0, 100000000000000, 1, 2)"
    first = next(run_on_spark(lake, endless, 41).batches)
    assert first["id"].to_pylist() == list(range(41))
    tops = run_on_spark(lake, "SELECT id FROM range(100000) ORDER BY id DESC", 41)
    assert [len(batch) for batch in tops.batches] == [41]
    few = run_on_spark(lake, "SELECT id FROM range(0, 90, 1, 30) WHERE id % 3 = 0", 41)
    assert sum(map(len, few.batches)) == 30


def test_tasks_of_a_streamed_query_have_the_sessions_settings(lake):
    policy = "spark.sql.mapKeyDedupPolicy"
    twice = "SELECT map_from_arrays(array(id, id), array(1, 2)) AS m FROM range(1)"
    lake.spark.conf.set(policy, "LAST_WIN")
    try:
        (batch,) = run_on_spark(lake, twice).batches
    finally:
        lake.spark.conf.unset(policy)
    assert batch.to_pylist() == [{"m": [(0, 2)]}]


def test_json_is_an_array_of_row_objects(command, capsys):
    assert command(["sql", "SELECT id, twice FROM sql_tests.numbers WHERE id = 3", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == [{"id": 3, "twice": 6}]


def test_csv_and_text(command, capsys):
    assert command(["sql", "SELECT id, twice FROM sql_tests.numbers LIMIT 1", "--format=csv"]) == 0
    assert capsys.readouterr().out == "id,twice\n0,0\n"
    assert command(["sql", "SELECT 'x' AS letter"]) == 0
    assert capsys.readouterr().out.split() == ["letter", "x"]


@pytest.mark.parametrize(
    ("statement", "lines"),
    [
        ("SELECT 1,\n  FORM x y", ["    FORM x y", "           ^", "neve: [PARSE_SYNTAX_ERROR]"]),
        ("SELECT\t'東京', nope", ["  SELECT\\t'東京', nope", " " * 18 + "^", "neve: [UNRESOLVED"]),
    ],
)
def test_a_refused_statement_exits_1_with_a_caret_under_the_place(
    command, capsys, statement, lines
):
    assert command(["sql", statement]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    *shown, error = captured.err.splitlines()[-3:]
    assert shown == lines[:2]
    assert error.startswith(lines[2])


def test_words_files_and_several_statements(command, capsys, tmp_path):
    assert command(["sql", "--format", "csv", "SELECT", "1", "AS", "a"]) == 0
    assert capsys.readouterr().out == "a\n1\n"
    file = tmp_path / "q.sql"
    file.write_text("-- ; not here\nSELECT ';' AS a; ;\nSELECT 2 AS b -- the end;\n")
    assert command(["sql", "-f", str(file)]) == 0
    assert capsys.readouterr().out.split() == ["a", ";", "b", "2"]
    assert command(["sql", str(file), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == [{"b": 2}]


def test_changes_answer_with_their_rows(command, capsys):
    name = "sql_tests.changed"
    layout = "'write.update.mode'='merge-on-read', 'write.delete.mode'='merge-on-read'"
    source = "(SELECT id FROM range(5, 8))"
    steps = {
        f"CREATE TABLE {name} (id BIGINT, x INT) USING iceberg TBLPROPERTIES ({layout})": "OK\n",
        f"INSERT INTO {name} SELECT id, 1 FROM range(6)": "OK, 6 rows\n",
        f"UPDATE {name} SET x = 2 WHERE id < 2": "OK, 2 rows\n",
        f"DELETE FROM {name} WHERE id = 3": "OK, 1 row\n",
        f"MERGE INTO {name} t USING {source} s ON t.id = s.id WHEN MATCHED THEN UPDATE SET x = 3 "
        "WHEN NOT MATCHED THEN INSERT (id, x) VALUES (s.id, 4)": "OK, 3 rows\n",
        f"DROP TABLE {name} PURGE": "OK\n",
    }
    for statement, answer in steps.items():
        assert command(["sql", statement]) == 0
        assert capsys.readouterr().out == answer, statement


def test_a_warehouse_that_cannot_be_written_is_said_and_nothing_is_made(tmp_path, lake):
    (tmp_path / "warehouse").write_text("a file in the way")
    with neve.open(sqlite_settings(tmp_path)) as other:
        other.sql("CREATE NAMESPACE blocked")
        with pytest.raises(StorageError, match="Failed to create file"):
            other.sql("CREATE TABLE blocked.t (id INT) USING iceberg")
        assert other.tables() == []


def test_a_second_lake_in_the_process_has_its_own_catalogs_and_leaves_spark_running(lake, tmp_path):
    with neve.open(sqlite_settings(tmp_path)) as second:
        assert second.query("SHOW NAMESPACES").num_rows == 0
    assert lake.query("SELECT 1 AS one").to_pylist() == [{"one": 1}]


def test_a_read_in_the_wrong_directory_makes_nothing_and_names_the_lake(
    lake, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NEVE_SPARK__MASTER", lake.settings.spark.master)
    assert run(["sql", "SHOW NAMESPACES", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == []
    assert run(["sql", "SELECT * FROM otel.logs"]) == 1
    assert f"no neve.yaml in {tmp_path}" in capsys.readouterr().err
    table = {"namespace": "shop", "changelog_table": "log", "mirror_table": "orders"}
    table |= {"primary_keys": ["id"], "sequence_column": ["seq"]}
    monkeypatch.setenv("NEVE_MERGE__TABLES", json.dumps([table]))
    assert run(["merge", "--dry-run"]) == 3
    assert not list(tmp_path.iterdir())
