"""`make test` fails when one of its parts does."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# The one test of each part: its directory and its marks.
PARTS = {
    "alone": ("unit", ()),
    "servers": ("e2e", ("servers",)),
    "spark": ("spark", ("spark",)),
    "elsewhere": ("integration", ("spark", "servers")),
    "timed": ("integration", ("timed", "servers")),
}
SETTINGS = "[pytest]\nmarkers =\n    spark\n    servers\n    timed\n    soak\n"


def run_parts(directory, failing):
    """Run one test in each part, of which one fails."""
    (directory / "pytest.ini").write_text(SETTINGS)
    for part, (where, marks) in {**PARTS, "soak": ("unit", ("soak",))}.items():
        file = directory / "tests" / where / f"test_{part}.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        decorators = "".join(f"@pytest.mark.{mark}\n" for mark in marks)
        passes = part not in (failing, "soak")
        file.write_text(f"import pytest\n{decorators}def test_it(): assert {passes}\n")
    return subprocess.run(
        [sys.executable, ROOT / "tools" / "side_by_side.py", "-q"],
        cwd=directory,
        # Many processes start here; Hypothesis would be most of what each does.
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


# Each runs six processes of pytest. One part that is shown, one that runs beside, and the last one.
USUAL = (None, "servers", "alone", "timed")


@pytest.mark.parametrize(
    "failing",
    [
        pytest.param(part, marks=() if part in USUAL else pytest.mark.soak)
        for part in (None, *PARTS)
    ],
)
def test_a_failure_in_any_part_is_a_failure(tmp_path, failing):
    ran = run_parts(tmp_path, failing)
    failed = 0 if failing is None else 1
    assert ran.returncode == failed, ran.stdout
    assert ran.stdout.count("1 failed") == failed
    assert ran.stdout.count("1 passed") == len(PARTS) - failed
    assert ran.stdout.count("which ran beside") == 3
