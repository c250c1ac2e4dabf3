"""Version clauses in the SQL that Spark runs: where they may stand, and what is refused."""

import json

import pytest
from pyarrow import parquet

import neve
from neve.cli.app import run
from neve.errors import NotFoundError, SqlError, UnsupportedError, UsageError
from neve.query.run import run as run_query
from neve.versions import replacing


@pytest.fixture(scope="module")
def lake(embedded_lake):
    lake = embedded_lake
    lake.sql("CREATE NAMESPACE IF NOT EXISTS clauses")
    lake.sql("CREATE NAMESPACE IF NOT EXISTS clauses.inner")
    for name in ("clauses.t", "clauses.inner.t", "clauses.`odd.t`"):
        lake.sql(f"CREATE TABLE {name} (id INT, version INT) USING iceberg")
        lake.sql(f"INSERT INTO {name} VALUES (1, 10)")
        lake.sql(f"INSERT INTO {name} VALUES (2, 20), (3, 30)")
    lake.sql("INSERT INTO clauses.t VALUES (4, 40)")
    lake.sql(f"ALTER TABLE clauses.t CREATE TAG first AS OF VERSION {ids(lake)[0]}")
    lake.sql("CREATE VIEW clauses.a_view AS SELECT 1 AS id")
    yield lake
    lake.sql("DROP VIEW clauses.a_view")
    for name in ("clauses.t", "clauses.inner.t", "clauses.`odd.t`"):
        lake.sql(f"DROP TABLE {name} PURGE")
    lake.sql("DROP NAMESPACE clauses.inner")
    lake.sql("DROP NAMESPACE clauses")


def ids(lake, table="clauses.t"):
    rows = lake.sql(f"SELECT snapshot_id FROM {table}.history ORDER BY made_current_at").collect()
    return [row[0] for row in rows]


def times(lake, table="clauses.t"):
    rows = lake.sql(
        f"SELECT date_format(made_current_at, \"yyyy-MM-dd'T'HH:mm:ss.SSS'Z'\") "
        f"FROM {table}.history ORDER BY made_current_at"
    ).collect()
    return [row[0] for row in rows]


def values(frame):
    return sorted(tuple(row) for row in frame.collect())


def helper_views(lake):
    views = lake.sql("SHOW VIEWS IN spark_catalog.default").collect()
    return [view["viewName"] for view in views if view["viewName"].startswith("neve_")]


def test_a_tag_of_digits_is_named_by_a_quoted_word(lake):
    first, *_ = ids(lake)
    lake.sql(f"ALTER TABLE clauses.t CREATE TAG `20261101` AS OF VERSION {first}")
    rows = "SELECT id FROM clauses.t VERSION"
    try:
        assert values(lake.sql(f"{rows} AS OF '20261101'")) == [(1,)]
        assert values(lake.sql(f"{rows} AS OF :v", {"v": "20261101"})) == [(1,)]
        assert values(lake.sql(f"{rows} SINCE '20261101'")) == [(2,), (3,), (4,)]
        assert values(lake.sql(f"{rows} AS OF '{first}'")) == [(1,)]
    finally:
        lake.sql("ALTER TABLE clauses.t DROP TAG `20261101`")


def test_all_ranges_of_a_statement_end_at_one_version(lake, monkeypatch):
    """Whoever commits while the statement is prepared."""
    lake.sql("CREATE TABLE clauses.moving AS SELECT 1 AS id")
    (first,) = ids(lake, "clauses.moving")
    read = replacing.TableReader

    def read_before_a_commit(*arguments):
        table = read(*arguments)
        lake.sql("INSERT INTO clauses.moving VALUES (2)")
        return table

    monkeypatch.setattr(replacing, "TableReader", read_before_a_commit)
    changes = f"SELECT count(*) FROM clauses.moving VERSION SINCE {first}"
    try:
        assert values(lake.sql(f"SELECT ({changes}) AS a, ({changes}) AS b")) == [(0, 0)]
    finally:
        lake.sql("DROP TABLE clauses.moving PURGE")


def test_a_range_adds_what_changed_to_the_rows(lake):
    first, second, _ = ids(lake)
    frame = lake.sql(f"SELECT * FROM clauses.t VERSION BETWEEN {first} AND {second}")
    added = ["_change_type", "_commit_snapshot_id", "_commit_timestamp"]
    assert frame.columns == ["id", "version", *added]
    assert values(frame.select("id", "_change_type", "_commit_snapshot_id")) == [
        (2, "insert", second),
        (3, "insert", second),
    ]
    assert values(lake.sql("SELECT id FROM clauses.t VERSION SINCE 'first'")) == [(2,), (3,), (4,)]
    assert helper_views(lake) == []


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("SELECT t.id FROM clauses.t VERSION SINCE 'first' WHERE t.version BETWEEN 20 AND 30",
         [(2,), (3,)]),
        ("SELECT x.id FROM clauses.t VERSION SINCE 'first' AS x JOIN clauses.t y USING (id)",
         [(2,), (3,), (4,)]),
        (("SELECT id FROM clauses.t VERSION AS OF 'first' JOIN clauses.t VERSION SINCE 'first' n "
          "USING (id)"), []),
        ("SELECT count(*), (SELECT count(*) FROM clauses.t VERSION SINCE 'first') FROM clauses.t",
         [(4, 3)]),
        ("WITH t AS (SELECT * FROM clauses.t VERSION SINCE 'first') SELECT count(*) FROM t",
         [(3,)]),
        ("SELECT id FROM clauses.t WHERE id IN (SELECT id FROM clauses.t VERSION SINCE 'first')",
         [(2,), (3,), (4,)]),
        ("SELECT t.id FROM clauses.t VERSION SINCE 'first' TABLESAMPLE (100 PERCENT)",
         [(2,), (3,), (4,)]),
        ("SELECT s.k FROM clauses.t VERSION SINCE 'first' s(k, v, a, b, c)", [(2,), (3,), (4,)]),
        (("SELECT id FROM clauses.t VERSION SINCE 'first' LATERAL VIEW explode(array(1, 2)) e AS n "
          "WHERE n = 1"), [(2,), (3,), (4,)]),
        ("SELECT id FROM clauses.t EXCEPT SELECT id FROM clauses.t VERSION SINCE 'first'", [(1,)]),
        ("SELECT id FROM (TABLE clauses.t VERSION SINCE 'first')", [(2,), (3,), (4,)]),
        (("SELECT o.id FROM clauses.t o, LATERAL (SELECT * FROM clauses.t VERSION SINCE 'first' i "
          "WHERE i.id = o.id)"), [(2,), (3,), (4,)]),
        ("SELECT id FROM lake.clauses.`odd.t` VERSION SINCE '2020-01-01'", [(1,), (2,), (3,)]),
        ("SELECT count(*) FROM clauses.inner.t VERSION SINCE '2020-01-01T00:00:00+02:00'", [(3,)]),
        ("SELECT id FROM clauses.t VERSION SINCE 'first' WITH (mode = 'net', keys = 'id')",
         [(2,), (3,), (4,)]),
        ("SELECT id FROM clauses.t VERSION SINCE 'first' WITH (mode = appends) x",
         [(2,), (3,), (4,)]),
        ("SELECT count(ALL version BETWEEN 1 AND 20) FROM clauses.t version", [(4,)]),
    ],
)  # fmt: skip
def test_a_clause_may_stand_where_a_table_may(lake, statement, expected):
    assert values(lake.sql(statement)) == expected


def test_statements_that_write_and_store(lake):
    since = "clauses.t VERSION SINCE 'first'"
    lake.sql(f"CREATE TABLE clauses.copy AS SELECT id FROM {since}")
    try:
        lake.sql(f"INSERT INTO clauses.copy SELECT id + 10 FROM {since}")
        lake.sql(
            f"MERGE INTO clauses.copy USING {since} ON copy.id = t.id WHEN MATCHED THEN DELETE"
        )
        lake.sql(f"MERGE INTO clauses.copy c USING {since} s ON c.id = s.id + 10 "
                 "WHEN MATCHED AND s.id = 2 THEN DELETE")  # fmt: skip
        assert values(lake.sql("SELECT id FROM clauses.copy")) == [(13,), (14,)]
    finally:
        lake.sql("DROP TABLE clauses.copy PURGE")
    (plan,) = lake.sql(f"EXPLAIN SELECT id FROM {since}").collect()
    assert "Physical Plan" in plan[0]
    assert helper_views(lake) == []


def test_a_temporary_view_keeps_what_its_query_reads(lake):
    query = "SELECT id FROM clauses.t VERSION SINCE 'first'"
    with neve.open(lake.settings) as other:
        for _ in range(2):
            other.sql(f"CREATE OR REPLACE TEMPORARY VIEW fresh AS {query}")
        assert len(helper_views(other)) == 1
        with pytest.raises(SqlError, match="already exists"):
            other.sql(f"CREATE TEMPORARY VIEW fresh AS {query}")
        assert values(other.sql("SELECT id FROM fresh")) == [(2,), (3,), (4,)]
        other.sql("DROP VIEW fresh")
        other.sql(f"CACHE TABLE kept AS {query}")
        assert values(other.sql("SELECT id FROM kept")) == [(2,), (3,), (4,)]
        # That of the view which was dropped has gone with it.
        assert len(helper_views(other)) == 1
        assert helper_views(lake) == []


def test_a_level_with_a_dot_is_the_namespace_that_the_database_has(lake):
    name = "`clauses.inner`.t"
    first, second = ids(lake, name)
    for statement in (f"SELECT id FROM {name} VERSION SINCE {first}", f"SELECT id FROM {name}"):
        expected = [(2,), (3,)] if "SINCE" in statement else [(1,), (2,), (3,)]
        assert values(lake.sql(statement)) == expected
    assert lake.table(f"{name}").current_snapshot_id == second
    assert sorted(row.id for row in lake.changes(name, since=first).collect()) == [2, 3]


def test_names_are_completed_as_spark_completes_them(lake):
    try:
        lake.sql("USE clauses")
        assert values(lake.sql("SELECT count(*) FROM t VERSION SINCE 'first'")) == [(3,)]
        lake.sql("USE clauses.inner")
        assert values(lake.sql("SELECT count(*) FROM t VERSION SINCE '2020-01-01'")) == [(3,)]
        assert values(lake.sql("SELECT count(*) FROM clauses.t VERSION SINCE 'first'")) == [(3,)]
        # Inside its own query the name is still the table's.
        assert values(
            lake.sql("WITH t AS (SELECT * FROM t VERSION SINCE '2020-01-01') SELECT id FROM t")
        ) == [(1,), (2,), (3,)]
        lake.sql("CREATE TEMPORARY VIEW t AS SELECT 1 AS id")
        with pytest.raises(UnsupportedError, match="t has no versions: it is a view"):
            lake.sql("SELECT * FROM t VERSION SINCE '2020-01-01'")
    finally:
        lake.sql("DROP VIEW IF EXISTS t")
        lake.sql("USE lake.clauses")


def test_a_time_is_looked_up_in_the_history_log(lake):
    first, second, third = times(lake)
    for moment, count in ((first, 1), (second, 3), (third, 4)):
        (row,) = lake.sql(f"SELECT count(*) FROM clauses.t VERSION AS OF '{moment}'").collect()
        assert row[0] == count
        for words in ("FOR VERSION", "SYSTEM_VERSION"):
            statement = f"SELECT count(*) AS n FROM clauses.t {words} AS OF '{moment}' WHERE true"
            assert lake.read(statement).to_pylist() == [{"n": count}]
    # Spark's own clause means the same.
    assert values(lake.sql(f"SELECT count(*) FROM clauses.t TIMESTAMP AS OF '{second}'")) == [(3,)]


def test_parameters_are_bound(lake):
    first, second, third = ids(lake)
    statement = "SELECT id FROM clauses.t VERSION BETWEEN :a AND :b WHERE id > :least"
    assert values(lake.sql(statement, {"a": first, "b": times(lake)[1], "least": 2})) == [(3,)]
    statement = ("SELECT id, ? AS x FROM clauses.t VERSION BETWEEN ? AND ? WHERE id > ? UNION ALL "
                 "SELECT count(*), ? FROM clauses.t VERSION AS OF ?")  # fmt: skip
    args = ["' OR 1=1", "first", third, 3, "y", second]
    assert values(lake.sql(statement, args)) == [(3, "y"), (4, "' OR 1=1")]
    for version in ("first", first, str(first), times(lake)[0]):
        assert values(lake.sql("SELECT id FROM clauses.t VERSION AS OF ?", [version])) == [(1,)]
    statement = "SELECT id, ? AS x FROM clauses.t VERSION SINCE ? WITH (mode = ?) WHERE id > ?"
    assert values(lake.sql(statement, ["x", second, "appends", 3])) == [(4, "x")]
    with pytest.raises(UsageError, match="mode and keys of a version clause are texts, not int"):
        lake.sql("SELECT id FROM clauses.t VERSION SINCE 'first' WITH (keys = :k)", {"k": 1})
    with pytest.raises(UsageError, match=r"the 1\. \? of the statement has no value"):
        lake.sql("SELECT * FROM clauses.t VERSION SINCE ?", [])
    with pytest.raises(UsageError, match=":a of the statement has no value"):
        lake.sql("SELECT * FROM clauses.t VERSION SINCE :a", {"b": 1})
    with pytest.raises(UsageError, match=r"a version is .* not float"):
        lake.sql("SELECT * FROM clauses.t VERSION SINCE :a", {"a": 1.5})


NO_SUCH_REF = "clauses.t has no tag or branch 'gone', and it is no ISO-8601 time (refs: first"


@pytest.mark.parametrize(
    ("clause", "kind", "said"),
    [
        ("VERSION SINCE 7", NotFoundError, "clauses.t has no snapshot 7 (refs: first"),
        ("VERSION AS OF 7", NotFoundError, "clauses.t has no snapshot 7 (refs: first"),
        ("VERSION SINCE 'gone'", UsageError, NO_SUCH_REF),
        ("VERSION AS OF 'gone'", UsageError, NO_SUCH_REF),
        ("VERSION AS OF '2026-13-01'", UsageError, "clauses.t has no tag or branch '2026-13-01'"),
        ("VERSION AS OF '2020-01-01'", NotFoundError,
         "clauses.t had no snapshot at 2020-01-01 yet (refs: first"),
        ("TIMESTAMP AS OF '2020-01-01'", NotFoundError,
         "clauses.t had no snapshot at 2020-01-01T00:00:00+00:00 yet (refs: first"),
        ("VERSION BETWEEN '2030-01-01' AND 'first'", UsageError, "clauses.t: the range begins at"),
        ("VERSION SINCE 'first' WITH (mode = 'all')", UsageError,
         "clauses.t: there is no mode 'all' (use one of changes, net, appends)"),
        ("VERSION SINCE 'first' WITH (rows = 'all')", UsageError,
         "clauses.t: there is no option 'rows'"),
        ("VERSION SINCE 'first' WITH (keys = 'nope')", UsageError, "nope"),
        ("VERSION SINCE 'first' WHERE nope = 1", SqlError, "line 1, pos 52"),
        ("VERSION SINCE", SqlError, "VERSION SINCE needs a snapshot id"),
    ],
)  # fmt: skip
def test_versions_that_make_no_sense(lake, clause, kind, said):
    with pytest.raises(kind) as refused:
        lake.sql(f"SELECT * FROM clauses.t {clause}")
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("name", "kind", "said"),
    [
        ("clauses.a_view", UnsupportedError, "clauses.a_view has no versions: it is a view"),
        ("clauses.t.history", UnsupportedError, "history has no versions: it is a metadata table"),
        # Iceberg loads the table for it, and the range would end at the table's own version.
        ("clauses.t.tag_first", UnsupportedError, "clauses.t.tag_first has no versions"),
        ("parquet.`{files}`", UnsupportedError, "has no versions: it is no Iceberg table"),
        ("clauses.u", NotFoundError, "table clauses.u does not exist in catalog lake (did you"),
    ],
)
def test_what_has_no_versions(lake, tmp_path, name, kind, said):
    if "{files}" in name:
        lake.spark.range(1).write.parquet(str(tmp_path / "files"))
    with pytest.raises(kind) as refused:
        lake.sql(
            f"SELECT * FROM {name.format(files=tmp_path / 'files')} VERSION SINCE '2000-01-01'"
        )
    assert said in str(refused.value)


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE VIEW clauses.v AS SELECT * FROM clauses.t VERSION SINCE 'first'",
        "CREATE OR REPLACE VIEW clauses.v AS SELECT * FROM clauses.t VERSION SINCE 'first'",
        "ALTER VIEW clauses.a_view AS SELECT * FROM clauses.t VERSION SINCE 'first'",
        "CREATE GLOBAL TEMPORARY VIEW v AS SELECT * FROM clauses.t VERSION SINCE 'first'",
        "CREATE TEMPORARY FUNCTION f() RETURN SELECT max(id) FROM clauses.t VERSION SINCE 'first'",
    ],
)
def test_a_stored_query_is_refused(lake, statement):
    with pytest.raises(UnsupportedError, match="other sessions and engines, which do not know"):
        lake.sql(statement)


def test_a_range_in_a_text_that_spark_runs_by_itself(lake):
    text = "SELECT id FROM clauses.t VERSION SINCE \\'first\\'"
    lake.sql("DECLARE OR REPLACE VARIABLE statement STRING")
    lake.sql(f"SET VAR statement = '{text}'")
    for immediate in (f"EXECUTE IMMEDIATE '{text}'", "execute immediate statement"):
        with pytest.raises(UnsupportedError, match="does not know VERSION SINCE") as refused:
            lake.sql(immediate)
        assert "lake.sql(text, args)" in refused.value.hint
    assert lake.sql("EXECUTE IMMEDIATE 'SELECT 1'").collect() == [(1,)]


def test_a_clause_after_the_name_of_a_query(lake):
    with pytest.raises(UnsupportedError, match="c has no versions: it is a query of this"):
        lake.sql("WITH c AS (SELECT 1 AS id) SELECT * FROM c VERSION SINCE 1")


@pytest.fixture
def command(lake, monkeypatch):
    """Run the command line against the lake of these tests, with its JVM."""
    monkeypatch.setenv("NEVE_CATALOG__URI", lake.settings.catalog.uri)
    monkeypatch.setenv("NEVE_CATALOG__WAREHOUSE", lake.settings.catalog.warehouse)
    monkeypatch.setenv("NEVE_SPARK__MASTER", lake.settings.spark.master)
    return run


def test_changes_as_a_command(command, lake, capsys, tmp_path):
    first, second, third = ids(lake)
    assert command(["changes", "clauses.t", "--since", "first", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert sorted((row["id"], row["_commit_snapshot_id"]) for row in rows) == [
        (2, second),
        (3, second),
        (4, third),
    ]
    options = ["--until", times(lake)[1], "--mode", "net", "--keys", "id", "--limit", "2"]
    assert command(["changes", "clauses.t", *options, "--format", "jsonl"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(row["id"], row["_change_type"]) for row in rows] == [(1, "insert"), (2, "insert")]
    file = tmp_path / "rows.parquet"
    assert command(["changes", "clauses.t", "--since", str(first), "-o", str(file)]) == 0
    assert sorted(parquet.read_table(file)["id"].to_pylist()) == [2, 3, 4]
    capsys.readouterr()
    assert command(["changes", "clauses.t", "--keys", "nope"]) == 2
    error = capsys.readouterr().err
    assert "nope" in error
    assert error.count("\n") == 1


def test_the_automatic_choice_takes_spark(lake):
    for statement, count in (
        ("SELECT * FROM clauses.t VERSION SINCE 'first'", 3),
        ("SELECT * FROM clauses.t VERSION AS OF 'first'", 1),
        (f"SELECT * FROM clauses.t VERSION AS OF '{times(lake)[1]}'", 3),
    ):
        answer = run_query(lake, statement)
        assert (answer.engine, sum(map(len, answer.batches))) == ("spark", count)
    assert helper_views(lake) == []
