"""`make test` fails when one of its two halves does."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SETTINGS = "[pytest]\nmarkers =\n    spark\n    soak\n"


def run_halves(directory, without, with_spark):
    """Run one test in each half, of which each passes or fails."""
    (directory / "pytest.ini").write_text(SETTINGS)
    (directory / "test_halves.py").write_text(
        "import pytest\n"
        f"def test_without(): assert {without}\n"
        f"@pytest.mark.spark\ndef test_with(): assert {with_spark}\n"
        "@pytest.mark.soak\ndef test_soak(): assert False\n"
    )
    return subprocess.run(
        [sys.executable, ROOT / "tools" / "side_by_side.py", "-q"],
        cwd=directory,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


@pytest.mark.parametrize(
    ("without", "with_spark", "status"), [(True, True, 0), (False, True, 1), (True, False, 1)]
)
def test_a_failure_in_either_half_is_a_failure(tmp_path, without, with_spark, status):
    ran = run_halves(tmp_path, without, with_spark)
    assert ran.returncode == status, ran.stdout
    assert ran.stdout.count("1 failed") == status
    assert ran.stdout.count("1 passed") == 2 - status
    assert "which ran beside" in ran.stdout
