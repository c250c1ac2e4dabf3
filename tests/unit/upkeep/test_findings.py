"""What health finds in a table, what it advises, and that the advice would do something."""

from __future__ import annotations

import json

import pytest

from neve.config import Settings
from neve.lake.horizons import KEYS, ROOT_PROPERTY, SOURCE
from neve.lake.manifests import Manifest
from neve.lake.metadata_json import MetadataJson
from neve.lake.table_ref import TableRef
from neve.limits import MIB
from neve.upkeep.health import assess
from neve.upkeep.layout import Layout
from neve.upkeep.observed_table import ObservedTable
from neve.upkeep.policy import compaction_policy
from neve.upkeep.retention_policy import retention_policy
from neve.upkeep.table_kind import table_kind

NOW = 1_800_000_000.0
HOUR_MS = 3_600_000
TELEMETRY, OWN = ("otel", "logs"), ("shop", "events")
MIRROR = {KEYS: '["id"]', SOURCE: '{"table": "shop.log"}'}


def snapshot(number, hours_ago=0.0, parent=None, **summary):
    made = {"snapshot-id": number, "timestamp-ms": int(NOW * 1000 - hours_ago * HOUR_MS)}
    return {**made, "parent-snapshot-id": parent, "sequence-number": number, "summary": summary}


def line(count, hours_ago=0.0):
    """Return commits of `main`, each from the one before it."""
    return [
        snapshot(number, hours_ago, number - 1 or None, **{"added-records": "10"})
        for number in range(1, count + 1)
    ]


def document(snapshots=(), refs=(), **properties):
    main = [each for each in snapshots if each["snapshot-id"] not in dict(refs).values()]
    current = main[-1]["snapshot-id"] if main else None
    named = {name: {"snapshot-id": number, "type": "branch"} for name, number in refs}
    return MetadataJson(
        "file:///t/metadata/1.metadata.json",
        {
            "table-uuid": "u",
            "format-version": 2,
            "location": "file:///t",
            "current-snapshot-id": current,
            "snapshots": list(snapshots),
            "snapshot-log": [
                {"snapshot-id": each["snapshot-id"], "timestamp-ms": each["timestamp-ms"]}
                for each in main
            ],
            "refs": {**named, "main": {"snapshot-id": current, "type": "branch"}},
            "properties": properties,
        },
    )


def observed(name=OWN, metadata=None, policy=None, changelog=None, manifests=0, **layout):
    tables = {"tables": {".".join(name): policy}} if policy else {}
    settings = Settings.model_validate({"upkeep": tables})
    metadata = metadata or document(line(1))
    return ObservedTable(
        TableRef("lake", name),
        metadata,
        table_kind(settings, name, metadata),
        compaction_policy(settings, ".".join(name)),
        retention_policy(settings, name, metadata),
        layout.pop("metadata_bytes", 1000),
        [Manifest(f"m{number}", MIB, 0, False, 1, 1, 1) for number in range(manifests)],
        Layout(**{"files": 1, "bytes": MIB, "records": 1000, **layout}),
        changelog,
    )


def findings(*arguments, **options):
    return {each.name: each for each in assess(observed(*arguments, **options), NOW).findings}


CASES = {
    "deleted_rows": ({"deleted_rows": 300, "files_with_deletes": 1}, "compact"),
    "delete_files": (
        {"surplus_delete_files": 21},
        "compact",
    ),
    "manifests": ({"manifests": 401}, "compact"),
    "snapshots": ({"metadata": document(line(2001, hours_ago=48))}, "expire"),
    "metadata": (
        {"metadata": document(line(500, hours_ago=48)), "metadata_bytes": 20 * MIB},
        "expire",
    ),
}
EFFECTS = {
    "deleted_rows": "up to 300 rows fewer to read and to skip",
    "delete_files": "21 position delete files fewer",
    "manifests": "401 manifests become about 51",
    "snapshots": "2,001 snapshots become about 20",
}


@pytest.mark.parametrize("name", CASES)
def test_the_advice_for_a_table_of_others_is_the_policy_without_which_nothing_is_done(name):
    state, key = CASES[name]
    (finding,) = [each for each in findings(**state).values() if each.name == name]
    policy = f"upkeep.tables: {{shop.events: {{{key}: true}}}}"
    assert finding.action == f"allow it in neve.yaml: {policy}"
    assert EFFECTS.get(name, finding.effect) == finding.effect
    assert findings(policy={key: True}, **state)[name].action == "neve maintain shop.events"
    assert findings(TELEMETRY, **state)[name].action == "neve maintain otel.logs"


def test_what_expiry_leaves_is_told_in_numbers_and_no_expiry_is_advised_where_none_goes():
    effect = findings(**CASES["metadata"][0])["metadata"].effect
    assert effect.startswith("21.0 MB become about 8")
    young = findings(policy={"expire": True}, metadata=document(line(2001)))["snapshots"]
    assert young.effect == "2,001 snapshots become about 2,001"
    assert young.action == "a shorter retention: upkeep.tables: {shop.events: {retain: …}}"


def test_a_skewed_table_is_told_with_its_largest_partition_and_what_a_query_of_it_reads():
    day = 20_000
    sizes = {(0, (day + number,)): MIB if number else 290 * MIB for number in range(30)}
    fields = [{"name": "at_day", "transform": "day", "source-id": 1, "field-id": 1000}]
    metadata = document(line(1))
    metadata.document["partition-specs"] = [{"spec-id": 0, "fields": fields}]
    state = {"bytes_by_partition": sizes, "bytes": sum(sizes.values())}
    finding = findings(OWN, metadata, **state)["skew"]
    assert finding.text == "its largest partition, at_day=2024-10-04, is 27 times the mean"
    assert finding.effect == "a query of it reads 304 MB, one of the mean 11.1 MB"
    assert "ADD PARTITION FIELD" in finding.action
    assert finding.penalty == 5
    assert findings(TELEMETRY, metadata, **state)["skew"].action is None


def test_batches_that_are_left_staged_and_those_that_audits_hold_are_told_with_their_rows():
    batches = [snapshot(number, 2.0, 1, **{"added-records": "70"}) for number in (2, 3)]
    young = snapshot(4, 0.1, 1, **{"added-records": "9"})
    refs = {"neve-staged-a": 2, "neve-held-b": 3, "neve-staged-c": 4}
    table = document([*line(1), *batches, young], tuple(refs.items()))
    report = assess(observed(TELEMETRY, table), NOW)
    assert (report.staged, report.held) == (2, 1)
    staged, held = report.findings
    assert staged.text == "batches were staged and not published: 1, the oldest for 2.0 h"
    assert staged.effect.startswith("70 rows are published")
    assert (held.name, held.action) == ("held", "neve staged list otel.logs")
    assert held.effect == "70 rows come into the table, or are given up"
    fresh = document([*line(1), young], (("neve-staged-c", 4),))
    assert findings(TELEMETRY, fresh) == {}


@pytest.mark.parametrize(
    ("rows", "root", "index", "is_found"),
    [
        (199_999, None, "none", False),
        (200_000, None, "missing", True),
        (200_000, 99, "missing", True),
        (199_999, 99, "none", False),
        (200_000, 3, "fresh", False),
        (200_000, 1, "behind", False),
    ],
)
def test_a_mirror_lacks_an_index_only_where_merges_would_use_one(rows, root, index, is_found):
    properties = dict(MIRROR)
    if root:
        properties[ROOT_PROPERTY] = json.dumps({"snapshot_id": root})
    table = document(line(3, hours_ago=2.0), (), **properties)
    report = assess(observed(OWN, table, records=rows), NOW)
    behind = {"fresh": (0, 0.0), "behind": (2, 7200.0)}.get(index, (None, None))
    assert report.index == index
    assert (report.index_behind, report.index_behind_seconds) == behind
    assert [each.name for each in report.findings] == ["index"] * is_found
    if is_found:
        (finding,) = report.findings
        assert finding.action == "neve index build shop.events"
        assert "200,000 rows" in finding.effect


def test_an_index_that_is_too_far_behind_to_be_used_is_found():
    root = {ROOT_PROPERTY: json.dumps({"snapshot_id": 1})}
    table = document(line(102), (), **MIRROR, **root)
    finding = findings(OWN, table, records=200_000)["index"]
    assert finding.text.startswith("its index is 101 commits behind, and not used any more")
    assert findings(OWN, table) == {}


def test_the_lag_of_a_mirror_is_told_with_the_changes_that_wait():
    table = document(line(1), (), **MIRROR)
    finding = findings(OWN, table, changelog=document(line(3, hours_ago=2.0)))["lag"]
    assert finding.text == "3 commits of its changelog wait, the oldest for 120 min"
    assert (finding.action, finding.effect) == (
        "neve merge shop.events --once",
        "30 changes are merged",
    )


def test_a_follower_that_is_far_behind_is_told_with_what_it_keeps():
    table = document(line(3, hours_ago=2.0))
    table.document["refs"]["neve_follow_copy"] = {"snapshot-id": 1, "type": "tag"}
    finding = findings(OWN, MetadataJson(table.metadata_location, table.document))["followers"]
    assert finding.text.startswith("a follower is 2.0 h behind")
    assert finding.effect.startswith("2 snapshots may expire")
