"""How an answer is printed: fitted to a screen, whole in a pipe, whole or not at all in a file."""

import json
import os
import re
import subprocess
import sys
import time
from datetime import datetime, timezone
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet
from rich.cells import cell_len

from neve.cli.cells import safe
from neve.cli.grid import Column, Screen, table_lines, vertical_lines
from neve.cli.output import JsonOutput, TextOutput
from neve.cli.results import Options, print_answer
from neve.errors import StorageError, UsageError
from neve.query.answer import Answer
from tests.support.terminal import CTRL_C, Terminal

NAMES = [f"column_{number}" for number in range(20)]
WIDE = [[f"value {number} of row {row}" for number in range(20)] for row in range(3)]
HOSTILE = "\x1b]0;owned\x07\x1b[2Jgone\r\n\x9b31m\u202eright"


def answer(rows=3, **columns):
    table = pa.table({"id": list(range(rows)), **columns})
    return Answer(table.schema, iter(table.to_batches(max_chunksize=10)), "duckdb")


def printed(capsys, what, **options):
    print_answer(what, TextOutput(), Options(**options))
    return capsys.readouterr().out


@pytest.mark.parametrize("width", [80, 120])
def test_columns_are_left_out_until_the_rest_fits(width):
    *lines, note = table_lines([Column(name) for name in NAMES], WIDE, Screen(width, colors=False))
    shown = len(lines[0].split())
    assert note == f"20 columns ({shown} shown); --vertical shows all"
    assert 4 < shown < 20
    assert all(line.startswith("value 0 of") for line in lines[1:])
    assert all(width - 20 < len(line) <= width for line in lines)


@pytest.mark.parametrize("width", [80, 120])
def test_a_record_down_the_page_has_all_columns_and_wraps_long_values(width):
    columns = [Column("short"), Column("long"), Column("endless")]
    row = ["日本", "x" * 150, "y" * 10_000]
    lines = vertical_lines(columns, [row], Screen(width, colors=False))
    assert lines[0] == "short    日本"
    assert "".join(line.strip() for line in lines[1:]).count("x") == 150
    assert sum("y" in line for line in lines) == 4
    assert lines[-1].endswith("y…")
    assert all(cell_len(line) <= width for line in lines)


def test_characters_of_two_columns_are_aligned_and_numbers_end_at_the_same_place():
    columns = [Column("城市"), Column("n", right=True), Column("end")]
    rows = [["東京都", 5, "|"], ["Rome", 1000, "|"]]
    lines = table_lines(columns, rows, Screen(80, colors=False))
    assert lines == ["城市       n  end", "東京都     5  |", "Rome    1000  |"]


def test_columns_that_are_null_in_every_row_are_named_instead_of_shown():
    columns = [Column("a"), Column("b"), Column("c")]
    lines = table_lines(columns, [[1, None, None], [2, None, None]], Screen(80, colors=False))
    assert lines == ["a", "1", "2", "2 columns are NULL in every row: b, c"]
    lines = vertical_lines(columns, [[1, None, None]], Screen(80, colors=False))
    assert lines == ["a  1", "2 columns are NULL in every row: b, c"]
    # Where nothing else is left, they are shown.
    assert table_lines([Column("a")], [[None]], Screen(80, colors=False)) == ["a", "NULL"]


def test_null_differs_from_an_empty_text(capsys):
    texts = pa.array(["", None, "NULL"])
    out = printed(capsys, answer(text=texts), format="table").splitlines()
    assert [line.split() for line in out[1:]] == [["0"], ["1", "NULL"], ["2", "NULL"]]
    assert printed(capsys, answer(text=texts), format="csv") == 'id,text\n0,""\n1,\n2,NULL\n'
    lines = table_lines([Column("a")], [[None], ["NULL"]], Screen(80))
    assert lines[1:] == ["\x1b[2mNULL\x1b[0m", "NULL"]


def test_maps_structs_and_lists_are_shortened_on_a_screen_and_whole_elsewhere(capsys):
    attributes = {f"key{number}": [number] * 9 for number in range(6)}
    line = table_lines([Column("m")], [[attributes]], Screen(200, colors=False))[1]
    assert line.startswith("{key0: [0, 0, 0, 0, … 5 more], key1:")
    assert line.endswith(", … 2 more}")
    out = printed(capsys, answer(1, m=[attributes]), format="table")
    assert json.dumps(attributes) in out


def test_what_a_terminal_would_obey_never_reaches_it():
    assert safe(HOSTILE) == "\\x1b]0;owned\\x07\\x1b[2Jgone\\r\\n\\x9b31m\\u202eright"
    for lines in (table_lines, vertical_lines):
        text = "".join(lines([Column(HOSTILE)], [[{HOSTILE: [HOSTILE]}]], Screen(80, colors=False)))
        assert text.isprintable()


def test_a_huge_value_is_not_measured_to_its_end():
    row, screen = ["東" * 10_000_000], Screen(80, colors=False)
    started = time.monotonic()
    *_, cell = table_lines([Column("text")], [row], screen)
    *_, line = vertical_lines([Column("text")], [row], screen)
    assert (cell_len(cell), cell[-1], line[-1]) == (80, "…", "…")
    assert time.monotonic() - started < 2


def test_all_formats_stream_the_whole_result_into_a_pipe(capsys):
    times = [datetime(2026, 1, 2, tzinfo=timezone.utc)] * 100
    out = printed(capsys, answer(100, at=times, raw=[b"\xff"] * 100))
    assert out.splitlines()[100] == "99  2026-01-02 00:00:00+00:00  ff"
    assert printed(capsys, answer(100), format="vertical").splitlines()[-2:] == [
        "row 100",
        "id  99",
    ]
    assert printed(capsys, answer(2), format="jsonl") == '{"id": 0}\n{"id": 1}\n'
    assert json.loads(printed(capsys, answer(100), format="json"))[99] == {"id": 99}
    assert json.loads(printed(capsys, answer(0), format="json")) == []
    assert printed(capsys, answer(100), format="csv", limit=12).splitlines()[-1] == "11"
    print_answer(answer(2, at=times[:2]), JsonOutput(), Options())
    assert json.loads(capsys.readouterr().out)[1]["at"] == "2026-01-02T00:00:00+00:00"


def test_two_columns_of_one_name_are_both_in_json(capsys):
    table = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"])
    twice = Answer(table.schema, iter(table.to_batches()), "spark")
    assert printed(capsys, twice, format="jsonl") == '{"a": 1, "a_2": 2}\n'


def test_times_beyond_pythons_are_text(capsys):
    far = pa.array([253402300800], pa.timestamp("s"))
    nanos = pa.array([1], pa.timestamp("ns"))
    out = printed(capsys, answer(1, far=far, nanos=nanos), format="csv")
    assert out.splitlines()[1] == "0,10000-01-01 00:00:00,1970-01-01 00:00:00.000000001"


def test_statements_without_rows_say_ok(capsys):
    def done(rows=None):
        return Answer(pa.schema([]), iter(()), "spark", changed_rows=rows)

    assert printed(capsys, done()) == "OK\n"
    assert printed(capsys, done(1)) == "OK, 1 row\n"
    assert printed(capsys, done(6000)) == "OK, 6,000 rows\n"
    assert printed(capsys, done(), format="json") == "[]\n"
    assert json.loads(printed(capsys, done(6), format="json")) == [{"rows": 6}]


def test_a_file_is_written_in_the_format_of_its_name(tmp_path, capsys):
    assert printed(capsys, answer(25), file=tmp_path / "r.parquet").startswith("25 rows written")
    assert parquet.read_table(tmp_path / "r.parquet")["id"].to_pylist() == list(range(25))
    printed(capsys, answer(25), file=tmp_path / "r.parquet", limit=11)
    assert parquet.read_table(tmp_path / "r.parquet").num_rows == 11
    printed(capsys, answer(2), file=tmp_path / "r.csv")
    assert (tmp_path / "r.csv").read_text() == "id\n0\n1\n"
    print_answer(answer(2), JsonOutput(), Options(file=tmp_path / "r.json"))
    assert json.loads((tmp_path / "r.json").read_text()) == [{"id": 0}, {"id": 1}]
    assert json.loads(capsys.readouterr().out)["rows"] == 2
    assert sorted(path.name for path in tmp_path.iterdir()) == ["r.csv", "r.json", "r.parquet"]


def test_a_pipe_or_a_device_is_written_to_and_not_replaced(tmp_path, capsys):
    pipe, file, link = (tmp_path / name for name in ("pipe.csv", "file.csv", "link.csv"))
    os.mkfifo(pipe)
    link.symlink_to(file)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        printed(capsys, answer(2), file=pipe)
        assert os.read(reader, 100) == b"id\n0\n1\n"
    finally:
        os.close(reader)
    printed(capsys, answer(2), file=link)
    assert (pipe.is_fifo(), link.is_symlink(), file.read_text()) == (True, True, "id\n0\n1\n")


@pytest.mark.parametrize("name", ["r.csv", "r.parquet"])
def test_a_query_that_fails_leaves_the_old_file_and_no_other(tmp_path, name):
    def failing():
        yield pa.record_batch({"id": [1]})
        raise KeyboardInterrupt

    path = tmp_path / name
    path.write_text("old")
    broken = Answer(pa.schema([("id", pa.int64())]), failing(), "spark")
    with pytest.raises(KeyboardInterrupt):
        print_answer(broken, TextOutput(), Options(file=path))
    assert [file.name for file in tmp_path.iterdir()] == [name]
    assert path.read_text() == "old"


def test_what_cannot_be_done_is_said(tmp_path):
    with pytest.raises(StorageError, match="No such file or directory"):
        print_answer(answer(), TextOutput(), Options(file=tmp_path / "absent" / "r.csv"))
    with pytest.raises(UsageError, match="needs a file"):
        Options(format="parquet")
    with pytest.raises(UsageError, match="--limit"):
        Options(limit=-1)


# Several answers in one process, each after a line that names it.
SHOWING = """
import time, pyarrow as pa
from neve.cli.output import TextOutput
from neve.cli.results import Options, print_answer
from neve.query.answer import Answer
def show(name, rows, count=None, form=None):
    print("---", name, flush=True)
    ids = pa.table({"id": range(rows), "text": ["\\x1b[31mred \\u6771"] * rows})
    answer = Answer(ids.schema, iter(ids.to_batches(max_chunksize=7)), "spark", count)
    print_answer(answer, TextOutput(), Options(form))
show("few", 3)
show("one", 1)
show("one as a table", 1, form="table")
show("csv", 1, form="csv")
show("read to the end", 1000)
show("counted", 1000, lambda: 1_000_000)
show("interrupted", 1000, lambda: time.sleep(60))
"""


@pytest.mark.parametrize("columns", [80, 120])
def test_a_terminal_shows_what_fits_and_how_many_rows_there_are(columns):
    with Terminal(["-c", SHOWING], columns, program=sys.executable, cwd=Path.cwd()) as terminal:
        terminal.wait_for("--- interrupted")
        terminal.wait_for("counting", after="--- interrupted")
        terminal.type(CTRL_C)
        screen = terminal.finish()
    assert screen.status == 0, screen.text
    assert "\x1b[31m" not in screen.raw
    parts = re.split(r"^--- (.*)\n", screen.text, flags=re.MULTILINE)
    shown = dict(zip(parts[1::2], parts[2::2], strict=True))
    assert "id  text\n 0  \\x1b[31mred 東\n" in shown["few"]
    assert "\n3 rows\n" in shown["few"]
    assert "\nid    0\ntext  \\x1b[31mred 東\n" in shown["one"]
    assert "\nid  text\n 0  \\x1b[31mred 東\n1 row\n" in shown["one as a table"]
    assert "\n0,\\x1b[31mred 東\n" in shown["csv"]
    assert "\n1,000 rows, 40 shown" in shown["read to the end"]
    assert "\n40 " not in shown["read to the end"]
    assert "\n1,000,000 rows, 40 shown" in shown["counted"]
    # The rows do not wait for the counting.
    assert shown["interrupted"].index("\n39  ") < shown["interrupted"].index("counting")
    assert "\nmore than 40 rows, 40 shown" in shown["interrupted"]


ENDLESS = """
import pyarrow as pa
from neve.cli.output import TextOutput
from neve.cli.results import Options, print_answer
from neve.query.answer import Answer
def batches():
    while True:
        yield pa.record_batch({"id": range(1000)})
print_answer(Answer(pa.schema([("id", pa.int64())]), batches(), "spark"), TextOutput(), Options())
"""


def test_a_reader_that_leaves_ends_it_silently():
    pipeline = 'set -o pipefail; "$0" -c "$1" | head -3'
    done = subprocess.run(
        ["bash", "-c", pipeline, sys.executable, ENDLESS],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.split() == ["id", "0", "1"]
