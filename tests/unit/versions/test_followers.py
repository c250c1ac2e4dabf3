"""What is told of followers, to people, to metrics and to expiry."""

from __future__ import annotations

import json
import time

import pytest

from neve.cli.app import run
from neve.lake.follower_tags import oldest_unread_ms
from neve.lake.followers import list_followers
from neve.lake.metadata_json import MetadataJson
from neve.observe.metrics import Registry
from neve.observe.upkeep import UpkeepMetrics
from tests.support.followed import TABLE, append, followed_lake, replace_metadata


@pytest.fixture
def lake(tmp_path):
    with followed_lake(tmp_path) as lake:
        yield lake


def test_the_lag_of_followers(lake):
    append(lake)
    (batch,) = lake.follow(TABLE, "a")
    batch.commit()
    (state,) = lake.followers()
    assert (state.lag_commits, state.lag_seconds, state.lag_rows) == (0, 0.0, 0)
    append(lake, 2)
    (state,) = list_followers(lake, TABLE)
    assert (state.table, state.snapshot_id, state.lag_commits, state.lag_rows) == (
        TABLE,
        batch.until,
        2,
        2,
    )
    assert 0 < state.lag_seconds < 60


@pytest.mark.parametrize("text", ["[]", "7", "no JSON", '{"branch": null}'])
def test_a_property_that_says_nothing_of_a_follower(lake, text):
    append(lake)
    (batch,) = lake.follow(TABLE, "a")
    batch.commit()
    with lake.catalog().load_table(TABLE).transaction() as change:
        change.set_properties({"neve.follow.a": text})
    (state,) = lake.followers()
    assert (state.branch, state.target, state.lag_commits) == ("main", None, 0)


def test_ten_thousand_snapshots(lake):
    append(lake)
    metadata = lake.reader().read(("shop", "orders"))
    (snapshot,) = metadata.document["snapshots"]
    now = metadata.last_updated_ms
    count = 10_000
    snapshots = [
        {
            **snapshot,
            "snapshot-id": number,
            "sequence-number": number,
            "timestamp-ms": now + number,
            **({"parent-snapshot-id": number - 1} if number > 1 else {}),
        }
        for number in range(1, count + 1)
    ]
    document = {
        **metadata.document,
        "snapshots": snapshots,
        "current-snapshot-id": count,
        "last-sequence-number": count,
        "last-updated-ms": now + count,
        "refs": {"main": {"snapshot-id": count, "type": "branch"}},
        "snapshot-log": [
            {"snapshot-id": each["snapshot-id"], "timestamp-ms": each["timestamp-ms"]}
            for each in snapshots
        ],
    }
    replace_metadata(metadata, document)
    started = time.process_time()
    batches = list(lake.follow(TABLE, "a"))
    batches[0].commit()
    (state,) = lake.followers()
    assert time.process_time() - started < 2
    assert (len(batches), batches[-1].until, state.lag_commits) == (100, count, count - 100)


def test_expiry_is_told_the_oldest_time_of_what_is_not_read():
    """Also where a later snapshot has an earlier time: it was staged, and published later."""
    parents = {1: None, 2: 1, 3: 2, 4: 3}
    times = {1: 10, 2: 30, 3: 20, 4: 40}

    def tag_at(snapshot_id):
        return {"snapshot-id": snapshot_id, "type": "tag"}

    metadata = MetadataJson(
        "",
        {
            "current-snapshot-id": 4,
            "snapshots": [
                {"snapshot-id": number, "parent-snapshot-id": parent, "timestamp-ms": times[number]}
                for number, parent in parents.items()
            ]
            + [{"snapshot-id": 5, "parent-snapshot-id": 1, "timestamp-ms": 15}],
            "refs": {
                "neve_follow_a": tag_at(1),
                "neve_follow_b": tag_at(3),
                "neve_follow_c": tag_at(4),
                "neve_follow_lost": tag_at(5),
                "neve_staged": tag_at(5),
            },
        },
    )
    assert oldest_unread_ms(metadata) == {"a": 20, "b": 40}


def test_the_command_lists_and_drops(lake, tmp_path, capsys):
    append(lake)
    (batch,) = lake.follow(TABLE, "a")
    batch.commit()
    append(lake)
    config = tmp_path / "neve.yaml"
    catalog = {"uri": lake.settings.catalog.uri, "warehouse": f"{tmp_path}/warehouse"}
    config.write_text(json.dumps({"catalog": catalog}))

    def command(*arguments):
        status = run([*arguments, "-c", str(config)])
        captured = capsys.readouterr()
        return status, captured.out or captured.err

    status, text = command("follow", "list", "--json")
    (follower,) = json.loads(text)
    assert (status, follower["table"], follower["name"]) == (0, TABLE, "a")
    assert (follower["snapshot_id"], follower["lag_commits"]) == (batch.until, 1)
    assert str(batch.until) in command("follow", "list", TABLE)[1]
    assert command("follow", "drop", TABLE, "b")[0] == 1
    assert str(batch.until) in command("follow", "drop", TABLE, "a")[1]
    assert command("follow", "list")[1].startswith("Nobody follows a table")


def test_lags_as_metrics(lake):
    append(lake)
    (batch,) = lake.follow(TABLE, "a")
    batch.commit()
    append(lake)
    registry = Registry({})
    metrics = UpkeepMetrics(registry)
    metrics.set_lags(lake.followers())
    labels = {"table": TABLE, "follower": "a"}
    assert registry.get_sample_value("neve_follow_lag_commits", labels) == 1
    assert 0 < registry.get_sample_value("neve_follow_lag_seconds", labels) < 60
    metrics.set_lags([])
    assert registry.get_sample_value("neve_follow_lag_commits", labels) is None
