"""Failpoints: one table equal to the code, a real SIGKILL, a raise for warm processes."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import neve
from neve import failpoints
from neve.errors import ConfigError

SOURCE = Path(neve.__file__).parent


def test_table_and_code_name_the_same_points():
    used = {
        name
        for path in SOURCE.rglob("*.py")
        for name in re.findall(r'failpoints\.reach\(\s*"([^"]+)"', path.read_text())
    }
    assert used == set(failpoints.POINTS)


def test_names_say_room_and_step_and_texts_say_what_they_interrupt():
    for name, what in failpoints.POINTS.items():
        assert re.fullmatch(r"[a-z]+\.[a-z_]+", name)
        assert len(what) > 20


def test_unarmed_points_cost_nothing_and_do_nothing():
    failpoints.reach("init.written")


def test_armed_point_cuts_at_the_asked_pass_only():
    with failpoints.armed("init.written", passes=3):
        failpoints.reach("init.written")
        failpoints.reach("lake.jar_fetched")
        failpoints.reach("init.written")
        with pytest.raises(failpoints.PowerCut):
            failpoints.reach("init.written")
    failpoints.reach("init.written")


def test_arming_an_unknown_point_is_refused():
    with pytest.raises(KeyError), failpoints.armed("no.such"):
        pass


@pytest.mark.parametrize("text", ["no.such", "init.written@0", "init.written@x", "init.written@"])
def test_environment_naming_no_point_is_refused(monkeypatch, text):
    monkeypatch.setenv("NEVE_FAILPOINT", text)
    with pytest.raises(ConfigError, match="names no failpoint"):
        failpoints.check_environment()


@pytest.mark.parametrize(("text", "passes"), [("init.written", 1), ("init.written@2", 2)])
def test_environment_ends_the_process_as_a_power_cut_would(text, passes):
    program = (
        "import atexit; from neve import failpoints\n"
        "atexit.register(print, 'cleaned up')\n"
        "for number in (1, 2, 3):\n"
        "    print(number, flush=True); failpoints.reach('init.written')\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "NEVE_FAILPOINT": text},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == -signal.SIGKILL
    assert ended.stdout.split() == [str(number) for number in range(1, passes + 1)]


def test_init_cut_short_leaves_no_file_and_can_be_repeated(tmp_path):
    command = [sys.executable, "-m", "neve", "-c", "neve.yaml", "init"]
    cut = subprocess.run(
        command,
        cwd=tmp_path,
        env={**os.environ, "NEVE_FAILPOINT": "init.written"},
        capture_output=True,
        check=False,
    )
    assert cut.returncode == -signal.SIGKILL
    assert not (tmp_path / "neve.yaml").exists()
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    assert "catalog:" in (tmp_path / "neve.yaml").read_text()
