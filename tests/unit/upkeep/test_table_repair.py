"""A table in the catalog with damaged files or a damaged index: told, and repaired when asked."""

from __future__ import annotations

import json

import pytest
import yaml

import neve
from neve.cli.app import run
from neve.errors import ConflictError, StorageError, UsageError
from neve.index.indexed_table import SEQUENCE
from neve.index.maintain import build
from neve.index.verify import verify
from neve.lake.horizons import KEYS, SOURCE
from neve.lake.pyiceberg_catalogs import NeveSqlCatalog
from neve.upkeep.damage import find_damage
from tests.support.direct_lake import DirectLake
from tests.support.lakes import sqlite_settings
from tests.support.leftovers import local_path
from tests.unit.upkeep.test_health import make_table

TABLE = "shop.events"


@pytest.fixture
def lake(tmp_path):
    with neve.open(sqlite_settings(tmp_path)) as lake:
        lake.catalog().create_namespace("shop")
        yield lake


@pytest.fixture
def neve_command(lake, tmp_path, capsys):
    """Run a command; return its status, and what it printed."""
    document = lake.settings.model_dump(mode="json", exclude_none=True, include={"catalog"})
    config = tmp_path / "neve.yaml"
    config.write_text(yaml.safe_dump(document))

    def call(*words):
        status = run([*words, "--config", str(config)])
        printed = capsys.readouterr()
        return status, " ".join(printed.out.split()), printed.err

    return call


def damage(table, place=-1, kind="manifest"):
    """Damage a file that a snapshot added; return it."""
    table.refresh()
    snapshot = table.metadata.snapshots[place]
    path = snapshot.manifest_list
    if kind == "manifest":
        manifests = snapshot.manifests(table.io)
        added = [each for each in manifests if each.added_snapshot_id == snapshot.snapshot_id]
        path = added[0].manifest_path
    local_path(path).write_bytes(b"damaged")
    return local_path(path)


def main_of(lake):
    return lake.catalog().load_table(TABLE).current_snapshot().snapshot_id


@pytest.mark.parametrize("kind", ["manifest", "list"])
def test_a_damaged_version_is_told_with_what_going_back_would_lose(lake, kind, neve_command):
    table = make_table(lake, TABLE, 5)
    # A manifest of the fourth of five commits, which the fifth names, too; or both their lists.
    file = damage(table, -2, kind)
    if kind == "list":
        file = damage(table, -1, kind)
    readable = table.metadata.snapshots[2].snapshot_id
    main, files = main_of(lake), sorted(local_path(table.location()).rglob("*"))
    for words in ((), ("--dry-run",)):
        status, said, _ = neve_command("recover", "--table", TABLE, *words)
        assert status == 3
        assert f"{file} cannot be read: it is not a whole Avro file" in said
        assert f"The newest version that can be read is snapshot {readable}" in said
        assert "Going back to it loses 2 commits with 4 rows." in said
        assert "neve recover --table shop.events --roll-back" in said
        assert f"CALL system.rollback_to_snapshot('shop.events', {readable})" in said
    status, said, _ = neve_command("--json", "recover", "--table", TABLE, "--dry-run")
    report = json.loads(said)
    assert (status, report["outcome"], report["lost_rows"]) == (3, "damaged", 4)
    # Nothing is done without being asked for, and neither by a dry run.
    status, said, _ = neve_command("recover", "--table", TABLE, "--roll-back", "--dry-run")
    assert (status, "would be rolled back" in said) == (0, True)
    assert (main_of(lake), sorted(local_path(table.location()).rglob("*"))) == (main, files)

    status, said, _ = neve_command("recover", "--table", TABLE, "--roll-back")
    assert (status, "shop.events: rolled back" in said) == (0, True)
    assert main_of(lake) == readable
    assert lake.catalog().load_table(TABLE).scan().to_arrow().num_rows == 6
    (health,) = lake.health(TABLE)
    assert health.error is None
    status, _, error = neve_command("recover", "--table", TABLE, "--roll-back")
    assert (status, "there is nothing to roll back" in error) == (2, True)


def test_a_single_commit_is_counted_as_one(lake, neve_command):
    damage(make_table(lake, TABLE, 2))
    _, said, _ = neve_command("recover", "--table", TABLE, "--dry-run")
    assert "Going back to it loses 1 commit with 2 rows." in said


def test_a_version_that_somebody_has_written_meanwhile_is_not_rolled_back(lake, monkeypatch):
    table = make_table(lake, TABLE, 2)
    damage(table)
    swap = NeveSqlCatalog.swap_metadata

    def be_late(catalog, *arguments):
        monkeypatch.setattr(NeveSqlCatalog, "swap_metadata", swap)
        with lake.catalog().load_table(TABLE).transaction() as change:
            change.set_properties({"somebody": "was first"})
        return swap(catalog, *arguments)

    main = main_of(lake)
    monkeypatch.setattr(NeveSqlCatalog, "swap_metadata", be_late)
    with pytest.raises(ConflictError):
        lake.recover_table(TABLE, roll_back=True)
    assert main_of(lake) == main
    assert lake.recover_table(TABLE, roll_back=True).outcome == "rolled back"


def test_where_no_version_can_be_read_the_file_is_named_and_nothing_is_rolled_back(lake):
    table = make_table(lake, TABLE, 1)
    file = damage(table)
    report = lake.recover_table(TABLE)
    assert (report.outcome, report.readable_snapshot_id) == ("damaged", None)
    assert report.damaged_file.endswith(file.name)
    file.unlink()
    assert lake.recover_table(TABLE).damage == "it is not there"
    with pytest.raises(UsageError, match="no version"):
        lake.recover_table(TABLE, roll_back=True)


def test_a_store_that_does_not_answer_is_no_damage(lake):
    make_table(lake, TABLE, 2)
    metadata = lake.reader().read(("shop", "events"))

    def silent(_path):
        raise StorageError("the store does not answer")

    with pytest.raises(StorageError):
        find_damage(metadata, silent)


def test_a_telemetry_table_can_have_its_rows_written_again(tmp_path):
    lake = DirectLake(tmp_path)
    with neve.open(lake.settings) as opened:
        with opened.writer() as writer:
            for name in ("first", "second"):
                lake.send(writer, name)
        damage(opened.catalog().load_table("otel.logs"))
        report = opened.recover_table("otel.logs", dry_run=True)
    assert report.statements[0].startswith("CALL system.rollback_to_snapshot('otel.logs', ")
    assert report.statements[1:] == ("neve consolidate --replay otel.logs",)


def test_files_in_no_snapshot_are_named(lake, neve_command):
    table = make_table(lake, TABLE, 1)
    for number in range(23):
        (local_path(table.location()) / "data" / f"lost-{number}.parquet").write_bytes(b"lost")
    status, said, _ = neve_command("recover", "--table", TABLE)
    assert status == 0
    assert "23 files of 92 B are in no snapshot" in said
    assert (said.count("lost-"), "and 3 more: --json names all 23" in said) == (20, True)
    _, said, _ = neve_command("--json", "recover", "--table", TABLE)
    report = json.loads(said)
    assert (report["outcome"], len(report["unreferenced"])) == ("nothing is broken", 23)
    assert report["unreferenced_is_complete"] is True


def make_mirror(lake):
    table = make_table(lake, TABLE, 1)
    names = {KEYS: '["service_name"]', SEQUENCE: '["size"]', SOURCE: '{"table": "shop.log"}'}
    with table.transaction() as change:
        change.set_properties(names)
    return table


@pytest.mark.parametrize("what", ["root", "shard", "content"])
def test_a_damaged_index_is_rebuilt(lake, what):
    table = make_mirror(lake)
    assert lake.recover_table(TABLE).outcome == "nothing is broken"
    root = build(lake, table.name()).root
    assert lake.recover_table(TABLE).index == ""
    (shard,) = [local_path(each.path) for each in root.shards]
    if what == "root":
        (file,) = [each for each in shard.parent.iterdir() if each.name.startswith("root")]
        file.write_bytes(b"damaged")
    elif what == "shard":
        shard.unlink()
    else:
        content = bytearray(shard.read_bytes())
        content[len(content) // 3] ^= 0xFF
        shard.write_bytes(content)
    dry = lake.recover_table(TABLE, dry_run=True)
    assert dry.outcome == "would be repaired"
    assert dry.index.startswith("would be rebuilt: ")
    report = lake.recover_table(TABLE)
    assert report.outcome == "repaired"
    assert report.index.startswith("rebuilt from 1 files: ")
    assert verify(lake, table.name()).differences == 0
    assert lake.recover_table(TABLE).outcome == "nothing is broken"
