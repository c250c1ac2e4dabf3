"""What is odd of one table costs no other table its turn, in any command that looks at many."""

from __future__ import annotations

import json

import pytest

import neve
from neve.cli.app import run
from neve.lake import metadata_reader
from neve.lake.follower_tags import TAG_PREFIX
from neve.lake.local_faults import PassingStoreError
from neve.observe import sentry
from neve.upkeep import health
from neve.upkeep.spec import upkeep_spec
from neve.upkeep.upkeep import Upkeep
from tests.support.odd_tables import ODDITIES, make_odd, make_table

ODD, GOOD = ("s", "odd"), ("s", "zgood")
# What each command makes of a table whose metadata can be read, and that is odd further in.
READABLE = {
    "tables": {"without_uuid", "garbage_list", "unknown_type"},
    "follow": {"without_uuid", "garbage_list", "unknown_type", "text_for_a_number"},
    "health": {"without_uuid", "unknown_type", "text_for_a_number"},
    "maintain": {"without_uuid", "unknown_type", "text_for_a_number"},
}


MOST_DIFFERENT = ("without_uuid", "no_object", "garbage_list")
SOME = [
    pytest.param(each, marks=[] if each in MOST_DIFFERENT else [pytest.mark.soak])
    for each in sorted(ODDITIES)
]


@pytest.fixture
def lake(tmp_path, monkeypatch):
    """A lake with two tables, whose directory is the current one."""
    (tmp_path / "neve.yaml").write_text(
        f"catalog: {{type: sqlite, uri: 'sqlite:///{tmp_path}/catalog.db', "
        f"warehouse: '{tmp_path}/warehouse'}}\n"
        f"catalogs: {{archive: {{type: sqlite, uri: 'sqlite:///{tmp_path}/archive.db', "
        f"warehouse: '{tmp_path}/archive'}}}}\n"
        f"buffer: {{location: '{tmp_path}/buffer'}}\n"
        "upkeep: {tables: {'s.*': {expire: true, remove_orphans: true}}}\n"
    )
    monkeypatch.chdir(tmp_path)
    with neve.open("neve.yaml") as opened:
        make_table(opened.catalog(), ODD)
        make_table(opened.catalog(), GOOD)
        yield opened


def follow(lake):
    """Have somebody follow the good table."""
    table = lake.catalog().load_table(GOOD)
    snapshot_id = table.current_snapshot().snapshot_id
    table.manage_snapshots().create_tag(snapshot_id, f"{TAG_PREFIX}somebody").commit()


def printed(capsys, *arguments):
    status = run(["--json", *arguments])
    output = capsys.readouterr()
    assert "Traceback" not in output.err
    return status, json.loads(output.out), output.err


@pytest.mark.parametrize("oddity", sorted(ODDITIES))
def test_commands_serve_the_others_and_name_the_odd_one(lake, oddity, capsys):
    follow(lake)
    make_odd(lake.catalog().load_table(ODD), oddity)
    for command in ("tables", "health", "maintain"):
        arguments = ["--dry-run"] if command == "maintain" else []
        status, rows, _ = printed(capsys, command, *arguments)
        errors = {row["table"] for row in rows if row.get("error")}
        is_readable = oddity in READABLE[command]
        assert (status, errors) == ((0, set()) if is_readable else (3, {"s.odd"}))
        if command != "maintain":
            assert {row["table"] for row in rows} == {"s.odd", "s.zgood"}
    status, rows, errors = printed(capsys, "follow", "list")
    assert [row["table"] for row in rows] == ["s.zgood"]
    is_readable = oddity in READABLE["follow"]
    assert (status, "s.odd cannot be read: " in errors) == (
        (0, False) if is_readable else (3, True)
    )


@pytest.mark.parametrize("oddity", SOME)
def test_the_others_are_maintained_and_moved(lake, oddity, capsys):
    make_odd(lake.catalog().load_table(ODD), oddity)
    status, reports, _ = printed(capsys, "maintain")
    errors = {report["table"]: report["error"] for report in reports}
    assert errors["s.zgood"] is None
    assert bool(errors["s.odd"]) == (status == 3) == (oddity not in READABLE["maintain"])
    status, reports, _ = printed(capsys, "move", "s.*", "--to", "archive")
    outcomes = {report["table"]: report["outcome"] for report in reports}
    assert outcomes["s.zgood"] == "registered"
    assert (outcomes["s.odd"] == "failed") == (status == 3)
    # With the odd table at the target, too, if it came there.
    status, plans, _ = printed(capsys, "move", "s.*", "--to", "archive", "--dry-run")
    assert {plan["table"] for plan in plans} == {"s.odd", "s.zgood"}


@pytest.mark.parametrize("oddity", SOME)
def test_the_service_looks_after_the_others(lake, oddity):
    """Both parts of upkeep in `neve run`: expiry, and the search for orphans."""
    make_odd(lake.catalog().load_table(ODD), oddity)
    upkeep = Upkeep(lake, upkeep_spec(lake.settings))
    report = upkeep.run()
    upkeep.remove_orphans(report)
    assert set(report.failures) == (set() if oddity in READABLE["follow"] else {"s.odd"})


@pytest.mark.usefixtures("lake")
@pytest.mark.parametrize(("failing", "expected"), [({ODD}, 3), ({ODD, GOOD}, 1)])
def test_tables_are_named_whose_store_answers_with_a_failure(
    failing, expected, monkeypatch, capsys
):
    read = metadata_reader.read_metadata_file

    def answering(identifier, *arguments, **options):
        if identifier in failing:
            raise PassingStoreError("AWS Error SERVICE_UNAVAILABLE, HTTP status code: 503")
        return read(identifier, *arguments, **options)

    monkeypatch.setattr(metadata_reader, "read_metadata_file", answering)
    status, rows, errors = printed(capsys, "tables")
    assert status == expected
    assert [row["table"] for row in rows] == ["s.odd", "s.zgood"]
    assert [row["rows"] for row in rows] == [None if row["error"] else 3 for row in rows]
    for name in failing:
        assert f"{'.'.join(name)} cannot be read: catalog lake: " in errors
    assert run(["tables"]) == expected
    assert ("s.zgood" in capsys.readouterr().out) == (GOOD not in failing)


@pytest.mark.usefixtures("lake")
def test_an_internal_error_is_reported_for_its_table(monkeypatch, capsys):
    """Not expected at all: the others have their turn, Sentry is told, the status is 3."""
    observe_table, told = health.observe_table, []

    def failing(lake, ref, metadata):
        if ref.identifier == ODD:
            raise ZeroDivisionError("a cell's value")
        return observe_table(lake, ref, metadata)

    monkeypatch.setattr(health, "observe_table", failing)
    monkeypatch.setattr(sentry, "capture", lambda error, *where: told.append((error, *where)))
    status, rows, _ = printed(capsys, "health")
    assert status == 3
    errors = {row["table"]: row["error"] for row in rows}
    assert errors["s.odd"].startswith("internal error: ZeroDivisionError")
    assert errors["s.zgood"] is None
    assert [(type(error), *where) for error, *where in told] == [
        (ZeroDivisionError, "health", "s.odd")
    ]
