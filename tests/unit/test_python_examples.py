"""The Python examples of the documentation have the types that the package says."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def test_mypy_accepts_every_python_example(tmp_path):
    """As a user's project sees the installed package: by its `py.typed`, from another directory."""
    examples = []
    for page in PAGES:
        blocks = re.findall(r"```python\n(.*?)```", page.read_text(), re.S)
        for number, block in enumerate(blocks):
            example = tmp_path / f"{page.stem.lower().replace('-', '_')}_{number}.py"
            example.write_text(block)
            examples.append(example.name)
    assert {"python_0.py", "tutorial_0.py"} <= set(examples)
    checked = subprocess.run(
        [
            *(sys.executable, "-m", "mypy", *examples),
            # Those of the linter, whose run has read pyspark, pyiceberg and ourselves.
            f"--config-file={ROOT / 'pyproject.toml'}",
            f"--cache-dir={ROOT / '.mypy_cache'}",
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr
