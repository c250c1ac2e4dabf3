"""What a configuration says of mirrors, held against the catalog; no JVM is started."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.types import ListType, LongType, StringType, TimeType

import neve
from neve.config import Settings
from neve.errors import ConfigError, NeveError, NotFoundError, UnsupportedError
from neve.merge.check import checks
from neve.merge.once import merge_once
from tests.support.lakes import sqlite_settings

SCHEMA = pa.schema(
    [
        ("customer_id", pa.int64()),
        ("name", pa.string()),
        ("rate", pa.float64()),
        ("is_new", pa.bool_()),
        ("tags", pa.list_(pa.string())),
        ("at", pa.timestamp("us")),
        ("op", pa.string()),
        ("lsn", pa.int64()),
    ]
)

# Columns of shop.odd that cannot be read, beside those of the schema.
ODD = ["_File", "_neve_operation", "NAME", "clock", "clocks"]


@pytest.fixture
def settings(tmp_path):
    settings = sqlite_settings(tmp_path)
    with neve.open(settings) as lake:
        lake.catalog().create_namespace("shop")
        lake.catalog().create_table("shop.changes", SCHEMA)
        lake.catalog().create_table("shop.theirs", SCHEMA)
        odd = lake.catalog().create_table("shop.odd", SCHEMA)
        with odd.update_schema() as update:
            update.add_column("_File", StringType())
            update.add_column("_neve_operation", StringType())
            update.add_column("NAME", StringType())
            update.add_column("clock", TimeType())
            update.add_column("clocks", ListType(99, TimeType(), element_required=False))
            update.add_column("customer_Id", LongType())
    return settings


def probe(settings, **keys):
    one = {
        "namespace": "shop",
        "changelog_table": "changes",
        "mirror_table": "rows",
        "primary_keys": "customer_id",
        "sequence_column": "lsn",
        **keys,
    }
    document = settings.model_dump(include={"catalog", "spark"}) | {"merge": {"tables": [one]}}
    checked = Settings.model_validate(document)
    ((name, check),) = checks(checked, lambda: neve.open(checked))
    assert name == f"mirror {one['namespace']}.{one['mirror_table']}"
    return check()


def problem(settings, kind=ConfigError, **keys):
    with pytest.raises(kind) as caught:
        probe(settings, **keys)
    return f"{caught.value.message} ({caught.value.hint})"


def test_a_mirror_that_can_be_made(settings):
    assert probe(settings, partition_by="day(at)") == "of shop.changes, to be made"


def test_columns_that_cannot_be_read_can_be_left_out(settings):
    left_out = {"exclude_columns": [*ODD, "customer_Id"]}
    assert probe(settings, changelog_table="odd", **left_out) == "of shop.odd, to be made"
    assert probe(settings, changelog_table="odd", include_columns=["name"]).startswith("of shop")


def test_a_changelog_that_does_not_exist_is_told_with_the_nearest_name(settings):
    told = problem(settings, NotFoundError, changelog_table="change")
    assert "shop.change does not exist" in told
    assert "did you mean shop.changes" in told
    assert "shop" in problem(settings, NotFoundError, namespace="none")


@pytest.mark.parametrize(
    ("keys", "told"),
    [
        (
            {"primary_keys": "custmer_id"},
            "names custmer_id, which shop.changes does not have (did you mean customer_id?)",
        ),
        ({"sequence_column": ["lsn", "zz"]}, "sequence_column names zz"),
        ({"operation_column": "kind"}, "operation_column names kind"),
        ({"include_columns": ["nam"]}, "did you mean name?"),
        (
            {"exclude_columns": ["nam"]},
            "exclude_columns names nam, which shop.changes does not have",
        ),
        ({"sequence_column": "rate"}, "sequence_column rate is double, which has no order"),
        ({"sequence_column": "is_new"}, "sequence_column is_new is boolean"),
        ({"sequence_column": "tags"}, "sequence_column tags is list<string>"),
        ({"primary_keys": ["name", "tags"]}, "the key column tags is list<string>"),
        ({"partition_by": "day(name)"}, "partition_by day(name): name is string"),
        (
            {"changelog_table": "odd", "include_columns": ["_File"]},
            "column _File of shop.odd has the name of a metadata column",
        ),
        (
            {"changelog_table": "odd", "include_columns": ["_neve_operation"]},
            "column _neve_operation of shop.odd has a name that begins with _neve_",
        ),
        ({"changelog_table": "odd"}, "column name of shop.odd is the same as NAME to Spark"),
        (
            {"changelog_table": "odd", "include_columns": ["clock"]},
            "has the type time, which Spark cannot read (leave it out: exclude_columns: [clock])",
        ),
        (
            {"changelog_table": "odd", "include_columns": ["clocks"]},
            "column clocks of shop.odd has the type time",
        ),
        (
            {"changelog_table": "odd", "exclude_columns": ODD, "primary_keys": "customer_Id"},
            "column customer_id of shop.odd is the same as customer_Id to Spark",
        ),
        ({"rename": {"name": "at"}}, "rename names name, which shop.changes still has"),
        ({"rename": {"old": "new"}}, "rename gives old the name new, which shop.changes does not"),
        ({"mirror_table": "theirs"}, "shop.theirs exists and was not made by Neve"),
    ],
)
def test_what_is_not_possible_is_refused_with_the_names(settings, keys, told):
    assert told in problem(settings, **keys)


@pytest.mark.parametrize("suffix", ["_tombstones", "_rejected"])
def test_somebody_else_s_table_beside_a_mirror_is_refused(settings, suffix):
    name = f"shop.rows{suffix}"
    with neve.open(settings) as lake:
        lake.catalog().create_table(name, SCHEMA)
    assert f"{name} beside it, and a table of that name exists" in problem(settings)
    with neve.open(settings) as lake, lake.catalog().load_table(name).transaction() as change:
        # By its name, which may never change: tables that exist have it.
        change.set_properties({"neve.merge.side-of": "shop.rows"})
    assert probe(settings) == "of shop.changes, to be made"


def test_every_error_says_what_to_do(settings):
    with pytest.raises(NeveError) as caught:
        probe(settings, primary_keys="zzzz")
    assert caught.value.hint == f"it has {', '.join(SCHEMA.names)}"
    assert caught.value.exit_status == 2


def make_variant(settings, table):
    """Give a table a column of a type that PyIceberg does not know, as Spark would."""
    with neve.open(settings) as lake:
        metadata = Path(lake.catalog().load_table(table).metadata_location.removeprefix("file://"))
    document = json.loads(metadata.read_text())
    document["schemas"][0]["fields"][1]["type"] = "variant"
    metadata.write_text(json.dumps(document))


def test_a_table_with_variant_stops_no_other(settings):
    make_variant(settings, "shop.theirs")
    said = "shop.theirs cannot be read by PyIceberg, which Neve uses: a column has the type variant"
    assert probe(settings) == "of shop.changes, to be made"
    assert said in problem(settings, UnsupportedError, changelog_table="theirs")
    assert said in problem(settings, UnsupportedError, mirror_table="theirs")
    with neve.open(settings) as lake:
        rows = {summary.table: summary.rows for summary in lake.tables()}
        assert rows == {"shop.changes": 0, "shop.odd": 0, "shop.theirs": 0}
    table = {"namespace": "shop", "primary_keys": "customer_id", "sequence_column": "lsn"}
    tables = [
        {**table, "changelog_table": name, "mirror_table": f"{name}_rows"}
        for name in ("theirs", "nothing")
    ]
    document = settings.model_dump(include={"catalog", "spark"}) | {"merge": {"tables": tables}}
    with neve.open(Settings.model_validate(document)) as lake:
        first, second = merge_once(lake, ())
    assert said in first.error.message
    assert isinstance(second.error, NotFoundError)
