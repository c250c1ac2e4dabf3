"""Reads that a generator makes have the same answer on DuckDB as on Spark."""

import random

import pytest

import neve
from tests.spark.test_query_engines import assert_same
from tests.support.lakes import sqlite_settings

SEED = 20261116
# Values at which engines, statistics and rounding differ most easily.
VALUES = {
    "i": ["0", "1", "-1", "2147483647", "-2147483648", "17", "NULL"],
    "l": ["0", "-5", "9007199254740993", "9223372036854775807", "-9223372036854775808", "NULL"],
    "f": ["float('0.1')", "float('Infinity')", "float(3)", "NULL"],
    "d": ["0.1D", "double('-Infinity')", "0.0D", "1e300", "2.5D", "NULL"],
    "n": ["0.00", "1.25", "-1.25", "9999999.99", "NULL"],
    "a": ["DATE '1969-12-31'", "DATE '2024-02-29'", "DATE '1500-01-01'", "NULL"],
    "t": [
        "TIMESTAMP '1969-12-31 23:59:59.999999Z'",
        "TIMESTAMP '2024-02-29 12:00:00Z'",
        "TIMESTAMP '0001-01-01 00:00:00Z'",
        "NULL",
    ],
    "z": ["TIMESTAMP_NTZ '1969-12-31 23:59:59.5'", "TIMESTAMP_NTZ '2024-02-29 12:00:00'", "NULL"],
    "s": ["''", "'a'", "'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa'", "'é'", "'𝄞x'", "'Z'", "'a%_'", "NULL"],
    "b": ["true", "false", "NULL"],
}
TYPES = {
    "i": "INT",
    "l": "BIGINT",
    "f": "FLOAT",
    "d": "DOUBLE",
    "n": "DECIMAL(9,2)",
    "a": "DATE",
    "t": "TIMESTAMP",
    "z": "TIMESTAMP_NTZ",
    "s": "STRING",
    "b": "BOOLEAN",
}
LITERALS = {
    "i": ["0", "17", "-1", "2147483647", "2.5", "1e0"],
    "l": ["0", "9007199254740993", "9223372036854775807", "-5"],
    "n": ["1.25", "0", "1"],
    "a": ["'1970-01-01'", "DATE '2024-02-29'"],
    "t": ["'1970-01-01 00:00:00'", "TIMESTAMP '2024-02-29 12:00:00'", "'2024-02-29'"],
    "z": ["'1970-01-01'", "TIMESTAMP_NTZ '2024-02-29 12:00:00'"],
    "s": ["''", "'a'", "'é'", "'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab'"],
    "b": ["true", "false"],
}
COMPARISONS = ["=", "<>", "<", "<=", ">", ">=", "<=>"]
NUMBERS = ["i", "d", "i % 7", "i / 2", "d * 2.5e0", "l", "cast(i AS BIGINT)"]


@pytest.fixture(scope="module")
def lake(embedded_lake, tmp_path_factory):
    """Tables with several small files, so that statistics decide which of them are read."""
    chance = random.Random(SEED)
    with neve.open(sqlite_settings(tmp_path_factory.mktemp("generated"))) as lake:
        lake.sql("CREATE NAMESPACE g")
        columns = ", ".join(f"{name} {kind}" for name, kind in TYPES.items())
        for table, rest in (
            ("plain", "TBLPROPERTIES ('format-version'='1')"),
            ("parts", "PARTITIONED BY (bucket(3, l), truncate(10, i), day(t), b)"),
            (
                "vectors",
                "TBLPROPERTIES ('format-version'='3', 'write.delete.mode'='merge-on-read')",
            ),
        ):
            lake.sql(f"CREATE TABLE g.{table} ({columns}) USING iceberg {rest}")
            for _ in range(3):
                rows = ", ".join(
                    f"({', '.join(chance.choice(values) for values in VALUES.values())})"
                    for _ in range(6)
                )
                lake.sql(f"INSERT INTO g.{table} VALUES {rows}")
        lake.sql("DELETE FROM g.vectors WHERE i = 17 OR s = 'a'")
        yield lake


class Generator:
    """Makes statements of the grammar that a plain read has."""

    def __init__(self, seed):
        self.chance = random.Random(seed)

    def pick(self, *options):
        return self.chance.choice(options)

    def condition(self, depth=0):
        # Comparisons of floating-point columns are Spark's: `test_plain_reads.py`.
        name = self.chance.choice(list(LITERALS))
        literals = LITERALS[name]
        kinds = ["compare", "compare", "null", "between", "in", "column"]
        kinds += ["and", "or", "not"] if depth < 2 else []
        kind = self.chance.choice(kinds)
        if kind in ("and", "or"):
            return f"({self.condition(depth + 1)} {kind.upper()} {self.condition(depth + 1)})"
        if kind == "not":
            return f"NOT ({self.condition(depth + 1)})"
        if kind == "null":
            return f"{self.chance.choice(list(TYPES))} IS {self.pick('', 'NOT ')}NULL"
        if kind == "between":
            return (
                f"{name} BETWEEN {self.chance.choice(literals)} AND {self.chance.choice(literals)}"
            )
        if kind == "in":
            same = self.chance.choice(literals)
            return f"{name} {self.pick('', 'NOT ')}IN ({same}, {same})"
        if kind == "column":
            return self.pick("i < l", "n > i", "l = l", "s LIKE 'a%'", "s LIKE '_'", "b", "t <= t")
        return f"{name} {self.chance.choice(COMPARISONS)} {self.chance.choice(literals)}"

    def number(self):
        return self.chance.choice(NUMBERS)

    def statement(self):
        table = self.pick("g.plain", "g.parts", "g.vectors")
        kind = self.pick("rows", "rows", "aggregate", "group", "join")
        where = f"WHERE {self.condition()}"
        if kind == "rows":
            key = self.chance.choice([name for name in TYPES if name != "d"])
            order = f"{key} {self.pick('ASC', 'DESC', 'DESC NULLS FIRST', 'NULLS LAST')}"
            numbers = f"{self.number()} AS x, CASE WHEN {self.condition()} THEN 1 ELSE 2 END AS c"
            return (
                f"SELECT *, {numbers} FROM {table} {where}",
                f"SELECT {key} FROM {table} ORDER BY {order}",
            )
        if kind == "join":
            on = self.pick(
                "a.i = c.i", "a.s = c.s AND a.b = c.b", "a.l < c.i", "a.t = c.t", "a.n = c.n"
            )
            side = self.pick("JOIN", "LEFT JOIN", "FULL JOIN")
            return (f"SELECT a.*, c.s FROM {table} a {side} g.plain c ON {on}",)
        aggregates = (
            f"count(*) AS c, count({self.number()}) AS n, min(s) AS s, max(t) AS t, max(l) AS l, "
            f"sum(i) AS i, sum(n) AS m, avg(i) AS a, count(DISTINCT s) AS u, "
            f"count_if({self.condition()}) AS w"
        )
        if kind == "aggregate":
            return (f"SELECT {aggregates} FROM {table} {where}",)
        key = self.pick("b", "s", "i % 3", "date_trunc('month', t)", "a", "n", "year(t)")
        return (f"SELECT {key} AS k, {aggregates} FROM {table} {where} GROUP BY {key}",)


@pytest.mark.parametrize(
    "count", [pytest.param(200, marks=pytest.mark.soak, id="many"), pytest.param(12, id="some")]
)
def test_generated_queries(lake, count):
    generator = Generator(SEED + count)
    statements = [statement for _ in range(count) for statement in generator.statement()]
    differences = [difference for each in statements if (difference := differing(lake, each))]
    assert differences == []


def differing(lake, statement):
    try:
        assert_same(lake, statement)
    except AssertionError as error:
        return str(error)
    return None
