"""Clauses are found where a table stands, and nowhere else."""

import pytest

from neve.errors import SqlError
from neve.versions.clauses import Parameter, find_clauses, splice


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
        "SELECT DISTINCT version BETWEEN 1 AND 2, all version FROM t",
        "SELECT * FROM t TIMESTAMP AS OF '2026-11-01'",
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
    ("rest", "has_alias"),
    [
        ("", False),
        (" WHERE x", False),
        (" LEFT JOIN u", False),
        (" LATERAL VIEW explode(x)", False),
        (" TABLESAMPLE (10 ROWS)", False),
        (", u", False),
        (" AS x", True),
        (" x", True),
        (" `left`", True),
    ],
)
def test_an_alias_is_seen(rest, has_alias):
    (clause,) = find_clauses(f"SELECT * FROM a.t VERSION SINCE 1{rest}")
    assert clause.has_alias is has_alias


@pytest.mark.parametrize(
    ("clause", "message"),
    [
        ("SINCE", "needs a snapshot id, a quoted tag, branch or time, or a parameter; the"),
        ("SINCE x", "not x (line 1, column"),
        ("SINCE 1.5", "not 1.5"),
        ("BETWEEN 1", "needs AND b"),
        ("BETWEEN 1 OR 2", "needs AND b after it, not OR"),
        ("SINCE 1 WITH (mode)", "WITH is written"),
        ("SINCE 1 WITH (mode = 'net'", "the statement ends there"),
    ],
)
def test_half_a_clause_is_refused(clause, message):
    with pytest.raises(SqlError) as refused:
        find_clauses(f"SELECT * FROM a.t VERSION {clause}")
    assert message in refused.value.message
