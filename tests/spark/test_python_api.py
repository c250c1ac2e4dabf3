"""The page on the Python API runs as it stands."""

import re
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "python.md"


def test_examples_run_one_after_the_other(embedded_lake, monkeypatch, tmp_path, capsys):
    """`embedded_lake` keeps Spark running, so that no example starts its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("NEVE_CONFIG", raising=False)
    text = PAGE.read_text()
    (settings,) = re.findall(r"```yaml\n(.*?)```", text, re.S)
    Path("neve.yaml").write_text(settings)
    for block in re.findall(r"```python\n(.*?)```", text, re.S):
        exec(compile(block, str(PAGE), "exec"), {"__name__": "example"})
    printed = capsys.readouterr().out
    assert "[{'events': 2}]\n2\n" in printed
    assert "shop.orders_changes 2 " in printed
    assert "('city', 'string')" in printed
    assert printed.endswith("[('shop.orders', 'merged', 1)]\n[{'id': 7, 'city': 'Arosa'}]\n")
