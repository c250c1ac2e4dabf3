"""Clauses are found where a table stands, and nowhere else."""

import pytest

from neve.errors import SqlError
from neve.versions.clauses import (
    Parameter,
    find_clauses,
    place_in_original,
    splice,
    tables_at_times,
    tokenize,
)
from neve.versions.stored_queries import StoredQuery, stored_query


def replaced(statement):
    return splice(statement, [(clause, "X") for clause in find_clauses(statement)])


@pytest.mark.parametrize(
    ("statement", "kind", "table", "points", "options"),
    [
        ("SELECT * FROM a.t VERSION SINCE 12", "since", ("a", "t"), (12,), {}),
        ("SELECT * FROM a.t version since 12L x", "since", ("a", "t"), (12,), {}),
        ("SELECT * FROM lake.a.t VERSION SINCE 'v1'", "since", ("lake", "a", "t"), ("v1",), {}),
        (
            ("SELECT * FROM `odd.name`.`t``k` "
            "VERSION BETWEEN 1 AND '2026-11-01' WITH (mode = 'net')"),
            "between",
            ("odd.name", "t`k"),
            (1, "2026-11-01"),
            {"mode": "net"},
        ),
        (
            "SELECT ?, x FROM a.t VERSION BETWEEN ? AND :end WITH (MODE = net, keys='a,b') y",
            "between",
            ("a", "t"),
            (Parameter(1), Parameter("end")),
            {"mode": "net", "keys": "a,b"},
        ),
        ("SELECT * FROM a.t VERSION AS OF '2026-11-01T00:00:00Z'", "as of", ("a", "t"),
         ("2026-11-01T00:00:00Z",), {}),
        ("SELECT * FROM a.t FOR VERSION AS OF 3", "as of", ("a", "t"), (3,), {}),
        ("SELECT * FROM a.version VERSION SINCE 1", "since", ("a", "version"), (1,), {}),
        ("SELECT * FROM `a.b`.c.order FOR VERSION SINCE 'x'", "since", ("a.b", "c", "order"),
         ("x",), {}),
        ("EXPLAIN FORMATTED SELECT * FROM a.`t😀` VERSION SINCE :v", "since", ("a", "t😀"),
         (Parameter("v"),), {}),
        ("SELECT 1 FROM x JOIN (SELECT * FROM a.2t vErSiOn bEtWeEn '1' aNd \"2\") y", "between",
         ("a", "2t"), ("1", "2"), {}),
        ("SELECT /*+ X(t) */ * FROM -- VERSION SINCE 2\n a.t /* /* VERSION */ */ VERSION SINCE 1",
         "since", ("a", "t"), (1,), {}),
        ("SELECT * FROM a.t FOR SYSTEM_VERSION AS OF 'x'", "as of", ("a", "t"), ("x",), {}),
        ("CREATE TABLE x AS TABLE a.t VERSION SINCE 1", "since", ("a", "t"), (1,), {}),
        ("INSERT INTO x.y TABLE a.t VERSION SINCE 1", "since", ("a", "t"), (1,), {}),
        ("INSERT OVERWRITE TABLE x BY NAME TABLE a.t VERSION SINCE 1", "since", ("a", "t"), (1,),
         {}),
        ("SELECT ? FROM a.t VERSION SINCE ? WITH (mode = ?, keys = :k)", "since", ("a", "t"),
         (Parameter(1),), {"mode": Parameter(2), "keys": Parameter("k")}),
        ("VALUES (1) UNION ALL SELECT id FROM t VERSION SINCE 1", "since", ("t",), (1,), {}),
        ("FROM a.t VERSION SINCE 1 |> WHERE version > 2", "since", ("a", "t"), (1,), {}),
        ("SELECT * FROM a.t VERSION/**/SINCE--\n1", "since", ("a", "t"), (1,), {}),
        ("SELECT * FROM a.t VERSION\t\n-- since when\nBETWEEN'x'AND'y'", "between", ("a", "t"),
         ("x", "y"), {}),
    ],
)  # fmt: skip
def test_a_clause_is_read(statement, kind, table, points, options):
    (clause,) = find_clauses(statement)
    assert (clause.kind, clause.table, clause.points) == (kind, table, points)
    assert clause.options == options


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT version FROM t WHERE version BETWEEN 1 AND 5",
        "SELECT t.version FROM t WHERE t.version BETWEEN 1 AND 5 AND NOT version BETWEEN 2 AND 3",
        "SELECT 'FROM t VERSION SINCE 1', \"FROM t VERSION SINCE 1\" FROM u",
        "SELECT 1 -- FROM t VERSION SINCE 1",
        "SELECT /* FROM t VERSION SINCE 1 */ 1",
        "SELECT `FROM t VERSION SINCE 1` FROM u",
        "SELECT x version FROM t version WHERE version.id = 1",
        "SELECT CASE WHEN version BETWEEN 1 AND 2 THEN 1 END FROM t",
        "SELECT id, CASE version BETWEEN 1 AND 2 WHEN true THEN 1 END FROM t",
        "SELECT DISTINCT version BETWEEN 1 AND 2, all version FROM t",
        "SELECT * FROM t TIMESTAMP AS OF '2026-11-01'",
        "SELECT count(ALL version BETWEEN 1 AND 2), version BETWEEN 1 AND 2 FROM t version",
        "SELECT * FROM t version JOIN u ON version.id = u.id WHERE u.version BETWEEN 1 AND 2",
        "SELECT r'FROM t VERSION SINCE 1\\', 'it''s FROM t VERSION SINCE 1 \\' still' FROM u",
        "SELECT 1 /* a /* FROM t VERSION SINCE 1 */ FROM t VERSION SINCE 2 */",
        "DROP TABLE a.t VERSION SINCE 1",
        "ALTER TABLE a.t VERSION SINCE 1 RENAME TO a.u",
        "DELETE FROM a.t VERSION SINCE 1",
        "INSERT INTO TABLE a.t VERSION SINCE 1 SELECT 1",
        "INSERT OVERWRITE TABLE a.t VERSION SINCE 1 SELECT 1",
        "UPDATE a.t VERSION SINCE 1 SET x = 1",
        "SELECT * FROM range(3) VERSION SINCE 1",
        "SELECT * FROM a.t SYSTEM_VERSION SINCE 1",
        "SELECT 'no end VERSION",
        "version",
        "",
    ],
)
def test_everything_else_stays_as_it_is(statement):
    assert find_clauses(statement) == []


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        (
            ("SELECT *  FROM a.t  VERSION  SINCE 1 /* é */ "
            "JOIN b.u VERSION BETWEEN 1 AND 2 u USING (id)"),
            "SELECT *  FROM X /* é */ JOIN X u USING (id)",
        ),
        ("WITH c AS (SELECT * FROM a.t VERSION SINCE 1) SELECT * FROM c, a.u VERSION SINCE 2;",
         "WITH c AS (SELECT * FROM X) SELECT * FROM c, X;"),
        ("MERGE INTO x USING a.t VERSION SINCE 1 WITH (mode='net') AS s ON x.id = s.id",
         "MERGE INTO x USING X AS s ON x.id = s.id"),
        ("SELECT * FROM a.t VERSION AS OF 'now' t", "SELECT * FROM a.t VERSION AS OF X t"),
    ],
)  # fmt: skip
def test_only_the_clauses_are_replaced(statement, expected):
    assert replaced(statement) == expected


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("SELECT t.id FROM a.t VERSION SINCE 1", "SELECT t.id FROM (`v` AS `t`)"),
        ("SELECT * FROM a.t VERSION SINCE 1 x, u", "SELECT * FROM (`v` AS `t`) x, u"),
        ("SELECT * FROM a.`t``k` VERSION SINCE 1 TABLESAMPLE (1 ROWS) AS x",
         "SELECT * FROM (`v` AS `t``k`) TABLESAMPLE (1 ROWS) AS x"),
        ("TABLE a.t VERSION SINCE 1", "TABLE `v`"),
        ("(TABLE a.t VERSION SINCE 1) EXCEPT TABLE u", "(TABLE `v`) EXCEPT TABLE u"),
        ("MERGE INTO x USING a.t VERSION SINCE 1 ON x.id = t.id",
         "MERGE INTO x USING `v` AS `t` ON x.id = t.id"),
        ("MERGE INTO x USING a.t VERSION SINCE 1 WITH (mode = net) s ON x.id = s.id",
         "MERGE INTO x USING `v` s ON x.id = s.id"),
    ],
)  # fmt: skip
def test_a_view_stands_in_its_place_under_the_name_of_the_table(statement, expected):
    (clause,) = find_clauses(statement)
    assert splice(statement, [(clause, clause.written("v"))]) == expected


@pytest.mark.parametrize(
    ("statement", "of_ctes"),
    [
        ("WITH t AS (SELECT 1) SELECT * FROM t VERSION SINCE 1", [True]),
        # Inside its own query a name is a table's still.
        ("WITH t AS (SELECT * FROM t VERSION SINCE 1) SELECT * FROM T VERSION SINCE 1",
         [False, True]),
        ("WITH RECURSIVE t(a) AS (SELECT * FROM t VERSION SINCE 1) SELECT 1", [True]),
        ("WITH a AS (SELECT 1), t AS (SELECT * FROM a VERSION SINCE 1) SELECT 1", [True]),
        ("SELECT * FROM (WITH t AS (SELECT 1) SELECT * FROM t VERSION SINCE 1), t VERSION SINCE 2",
         [True, False]),
        ("WITH t AS (SELECT 1) SELECT * FROM a.t VERSION SINCE 1", [False]),
        ("SELECT * FROM u VERSION SINCE 1 WITH (mode = net) JOIN mode VERSION SINCE 1",
         [False, False]),
    ],
)  # fmt: skip
def test_names_of_queries_in_with(statement, of_ctes):
    assert [clause.is_cte for clause in find_clauses(statement)] == of_ctes


@pytest.mark.parametrize(
    ("statement", "stored"),
    [
        ("CREATE OR REPLACE TEMPORARY VIEW V AS SELECT 1", StoredQuery("v", is_temporary=True)),
        ("CREATE TEMP VIEW v AS SELECT 1", StoredQuery("v", is_temporary=True)),
        ("CACHE LAZY TABLE v AS SELECT 1", StoredQuery("v", is_temporary=True)),
        ("CREATE VIEW v AS SELECT 1", StoredQuery("v", is_temporary=False)),
        ("CREATE GLOBAL TEMPORARY VIEW v AS SELECT 1", StoredQuery("v", is_temporary=False)),
        ("CREATE VIEW a.V AS SELECT 1", StoredQuery("a.v", is_temporary=False)),
        ("CREATE VIEW IF NOT EXISTS a.v AS SELECT 1", StoredQuery("a.v", is_temporary=False)),
        ("ALTER VIEW v AS SELECT 1", StoredQuery("v", is_temporary=False)),
        ("CREATE TEMPORARY FUNCTION f() RETURN SELECT 1", StoredQuery("f", is_temporary=False)),
        ("CREATE OR REPLACE TABLE v AS SELECT view FROM t", None),
        ("EXPLAIN CREATE TEMPORARY VIEW v AS SELECT 1", None),
        ("INSERT INTO view SELECT 1", None),
        ("SELECT 1", None),
        ("", None),
    ],
)
def test_statements_that_keep_their_query(statement, stored):
    assert stored_query(tokenize(statement)) == stored


def test_the_place_of_an_error_is_that_in_what_was_written():
    statement = "SELECT *\nFROM a.t VERSION SINCE 1, a.t\n VERSION SINCE 2 WHERE é = nope\nGROUP"
    replacements = [(clause, "a much longer text") for clause in find_clauses(statement)]
    spliced = splice(statement, replacements)
    for word in ("SELECT", "*", "FROM", "WHERE", "é", "nope", "GROUP"):
        before = spliced[: spliced.index(word)].split("\n")
        message = f"x; line {len(before)}, pos {len(before[-1])} y"
        before = statement[: statement.index(word)].split("\n")
        expected = f"x; line {len(before)}, pos {len(before[-1])} y"
        assert place_in_original(statement, replacements, message) == expected
    assert place_in_original(statement, replacements, "no place") == "no place"


def test_tables_at_times():
    statement = (
        "SELECT 'timestamp as of' FROM a.t TIMESTAMP AS OF now(), `b`.u FOR SYSTEM_TIME AS OF 1"
    )
    assert tables_at_times(statement) == [("a", "t"), ("b", "u")]


@pytest.mark.parametrize(
    ("clause", "message"),
    [
        ("SINCE " + "7" * 5000, "needs a snapshot id"),
        ("SINCE", "needs a snapshot id, a quoted tag, branch or time, or a parameter; the"),
        ("\nSINCE x", "not x (line 2, pos 6)"),
        ("SINCE 1.5", "not 1.5"),
        ("BETWEEN 1", "needs AND b"),
        ("BETWEEN 1 OR 2", "needs AND b after it, not OR"),
        ("SINCE 1 WITH (mode)", "WITH is written"),
        ("SINCE 1 WITH (mode = 'net'", "the statement ends there"),
        ("SINCE 1 WITH (mode = 'net', MODE = 'x')", "each option stands there once, not MODE"),
    ],
)
def test_half_a_clause_is_refused(clause, message):
    with pytest.raises(SqlError) as refused:
        find_clauses(f"SELECT * FROM a.t VERSION {clause}")
    assert message in refused.value.message


def test_a_name_that_is_computed_has_no_clause():
    with pytest.raises(SqlError) as refused:
        find_clauses("SELECT * FROM IDENTIFIER('a.t') VERSION SINCE 1")
    assert "stands after a table's name, not after IDENTIFIER (line 1, pos 32)" in str(
        refused.value
    )
