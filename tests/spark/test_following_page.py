"""The page on followers runs as it stands, and prints what it says."""

import re
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "following.md"


def test_examples_print_what_the_page_says(embedded_lake, monkeypatch, tmp_path, capsys):
    """`embedded_lake` keeps Spark running, so that no example starts its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("NEVE_CONFIG", raising=False)
    text = PAGE.read_text()
    (settings,) = re.findall(r"```yaml\n(.*?)```", text, re.S)
    Path("neve.yaml").write_text(settings)
    for block in re.findall(r"```python\n(.*?)```", text, re.S):
        exec(compile(block, str(PAGE), "exec"), {"__name__": "example"})
    *outputs, _ = re.findall(r"```text\n(.*?)```", text, re.S)
    assert capsys.readouterr().out == "".join(outputs)
