"""What `merge.tables` says, and what it may not say."""

from __future__ import annotations

import pydantic
import pytest

from neve.config import Settings, load
from neve.config.merging import MergeTableSettings
from neve.errors import ConfigError, UsageError
from neve.merge.spec import DELETE, INSERT, SNAPSHOT, TRUNCATE, UPDATE, merge_spec, merge_specs

ONE = {
    "namespace": "shop",
    "changelog_table": "orders_changes",
    "mirror_table": "orders",
    "primary_keys": "id",
    "sequence_column": "lsn",
}


def spec_of(**keys):
    return merge_spec(MergeTableSettings.model_validate({**ONE, **keys}), 500)


def problem(**keys):
    with pytest.raises(pydantic.ValidationError) as caught:
        MergeTableSettings.model_validate({**ONE, **keys})
    return str(caught.value)


def test_names_of_the_tables():
    spec = spec_of(namespace="a.b")
    assert spec.changelog == ("a", "b", "orders_changes")
    assert (spec.name, spec.changelog_name) == ("a.b.orders", "a.b.orders_changes")
    assert spec.tombstones == ("a", "b", "orders_tombstones")
    assert spec.rejected == ("a", "b", "orders_rejected")


def test_one_name_is_a_list_of_one():
    assert (spec_of().keys, spec_of().sequence) == (("id",), ("lsn",))
    spec = spec_of(primary_keys=["a", "b"], sequence_column=["c", "d"], partition_by="day(at)")
    assert (spec.keys, spec.sequence) == (("a", "b"), ("c", "d"))
    assert spec.partition_by == ("day(at)",)


def test_operations_known_and_added_in_any_case():
    known = spec_of(operations={"Upsert": "update", "GONE": "delete"}).operations
    assert {known[word] for word in ("i", "insert", "c")} == {INSERT}
    assert {known[word] for word in ("u", "update", "upsert")} == {UPDATE}
    assert {known[word] for word in ("d", "delete", "gone")} == {DELETE}
    assert (known["t"], known["truncate"], known["r"]) == (TRUNCATE, TRUNCATE, SNAPSHOT)


def test_which_columns_belong_into_the_mirror():
    everything = spec_of()
    assert everything.takes("name")
    assert not everything.takes("op")
    chosen = spec_of(include_columns=["name"])
    assert [c for c in ("id", "lsn", "name", "other", "op") if chosen.takes(c)] == [
        "id",
        "lsn",
        "name",
    ]
    without = spec_of(exclude_columns=["name"])
    assert [c for c in ("id", "lsn", "name", "other") if without.takes(c)] == ["id", "lsn", "other"]


def test_the_size_of_a_batch_is_the_table_s_or_everybody_s():
    assert spec_of().batch_size == 500
    assert spec_of(batch_size=7).batch_size == 7


@pytest.mark.parametrize(
    ("text", "seconds"), [("30d", 2_592_000.0), ("12h", 43_200.0), ("500ms", 0.5), (90, 90.0)]
)
def test_durations(text, seconds):
    assert spec_of(tombstone_retention=text).tombstone_retention_seconds == seconds


@pytest.mark.parametrize(
    ("keys", "told"),
    [
        ({"primary_keys": []}, "primary_keys"),
        ({"sequence_column": []}, "sequence_column"),
        ({"primary_keys": ["id", "id"]}, "primary_keys names a column twice"),
        ({"sequence_column": ["a", "a"]}, "sequence_column names a column twice"),
        ({"mirror_table": "orders_changes"}, "must differ"),
        ({"include_columns": ["a"], "exclude_columns": ["b"]}, "not both"),
        ({"exclude_columns": ["id"]}, "names id, which merging needs"),
        ({"exclude_columns": ["lsn"]}, "names lsn, which merging needs"),
        ({"exclude_columns": ["op"]}, "names op, which merging needs"),
        ({"batch_size": 0}, "batch_size"),
        ({"schema_policy": "lax"}, "permissive"),
        ({"operations": {"x": "merge"}}, "operations"),
        ({"tombstone_retention": "a month"}, "write seconds, or a number with ms, s, m, h or d"),
        ({"tombstone_retention": 0}, "greater than 0"),
    ],
)
def test_what_makes_no_sense_is_refused(keys, told):
    assert told in problem(**keys)


def test_settings_and_mirrors_by_name():
    merge = {"batch_size": 9, "interval": "5m", "tables": [ONE, {**ONE, "mirror_table": "copy"}]}
    settings = Settings.model_validate({"merge": merge})
    assert settings.merge.interval == 300
    assert [spec.name for spec in merge_specs(settings)] == ["shop.orders", "shop.copy"]
    assert [spec.batch_size for spec in merge_specs(settings, ("shop.copy",))] == [9]
    with pytest.raises(UsageError, match=r"no mirror shop\.none") as caught:
        merge_specs(settings, ("shop.none",))
    assert caught.value.hint == "there are: shop.orders, shop.copy"
    with pytest.raises(UsageError) as caught:
        merge_specs(Settings(), ("shop.orders",))
    assert "merge.tables" in caught.value.hint


def test_two_mirrors_of_one_name_are_refused():
    with pytest.raises(pydantic.ValidationError, match=r"two tables have the mirror shop\.orders"):
        Settings.model_validate({"merge": {"tables": [ONE, ONE]}})


@pytest.mark.parametrize("suffix", ["_tombstones", "_rejected"])
@pytest.mark.parametrize("setting", ["changelog_table", "mirror_table"])
def test_a_name_that_a_mirror_needs_for_a_table_beside_it_is_refused(setting, suffix):
    other = {**ONE, "mirror_table": "copy", setting: f"orders{suffix}"}
    told = rf"{setting} shop\.orders{suffix} is a table that the mirror shop\.orders keeps"
    with pytest.raises(pydantic.ValidationError, match=told):
        Settings.model_validate({"merge": {"tables": [ONE, other]}})
    elsewhere = {**other, "namespace": "other"}
    Settings.model_validate({"merge": {"tables": [ONE, elsewhere]}})


def test_a_changelog_cannot_be_beside_its_own_mirror():
    with pytest.raises(pydantic.ValidationError, match=r"changelog_table shop\.orders_rejected"):
        Settings.model_validate(
            {"merge": {"tables": [{**ONE, "changelog_table": "orders_rejected"}]}}
        )


def test_unknown_keys_are_told_with_the_nearest_one(tmp_path):
    path = tmp_path / "neve.yaml"
    lines = [f"      {key}: {value}" for key, value in ONE.items() if key != "primary_keys"]
    lines[0] = "    - " + lines[0].strip()
    path.write_text("\n".join(["merge:", "  tables:", *lines, "      primary_key: id"]))
    with pytest.raises(ConfigError) as caught:
        load(path)
    told = f"{caught.value.message} {caught.value.hint}"
    assert "merge.tables" in told
    assert "primary_keys" in told
