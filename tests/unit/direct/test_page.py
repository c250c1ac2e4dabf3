"""The examples of docs/without-spark.md print what the page says."""

import re
from pathlib import Path

PAGE = Path(__file__).parents[3] / "docs" / "without-spark.md"


def test_examples_print_what_the_page_says(tmp_path, monkeypatch, capsys):
    examples = re.findall(
        r"```python\n(?P<code>[^`]*)```\n\n```text\n(?P<printed>[^`]*)```", PAGE.read_text()
    )
    assert len(examples) == 2
    monkeypatch.chdir(tmp_path)  # where the embedded lake is made
    for code, printed in examples:
        exec(compile(code, PAGE.name, "exec"), {})
        assert capsys.readouterr().out == printed
