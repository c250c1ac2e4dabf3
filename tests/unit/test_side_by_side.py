"""`make test` fails when one of its parts does."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PARTS = ("alone", "servers", "spark", "timed")
SETTINGS = "[pytest]\nmarkers =\n    spark\n    servers\n    timed\n    soak\n"


def run_parts(directory, alone, servers, spark, timed):
    """Run one test in each part, of which each passes or fails."""
    (directory / "pytest.ini").write_text(SETTINGS)
    (directory / "test_parts.py").write_text(
        "import pytest\n"
        f"def test_alone(): assert {alone}\n"
        f"@pytest.mark.servers\ndef test_servers(): assert {servers}\n"
        f"@pytest.mark.spark\n@pytest.mark.servers\ndef test_spark(): assert {spark}\n"
        f"@pytest.mark.timed\n@pytest.mark.servers\ndef test_timed(): assert {timed}\n"
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


@pytest.mark.parametrize("failing", [None, *PARTS])
def test_a_failure_in_any_part_is_a_failure(tmp_path, failing):
    ran = run_parts(tmp_path, *(part != failing for part in PARTS))
    failed = 0 if failing is None else 1
    assert ran.returncode == failed, ran.stdout
    assert ran.stdout.count("1 failed") == failed
    assert ran.stdout.count("1 passed") == len(PARTS) - failed
    assert ran.stdout.count("which ran beside") == 2
