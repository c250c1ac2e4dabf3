"""What counts as the same output, when a page is compared with what its blocks print."""

import pytest

from tests.support.pages import Reader, blocks_of, differs

PAGE = """
```yaml
# app.yaml
a: 1
```

```bash
echo "held 0123456789abcdef" ; cat app.yaml
```

```text
held aaaaaaaaaaaaaaaa
...
a: 1
```

```bash
test aaaaaaaaaaaaaaaa = 0123456789abcdef
```

```bash second
bash -c "echo ready; sleep 60"
```

```text second
ready
```
"""


@pytest.mark.parametrize(
    ("shown", "printed"),
    [
        ("a  b", "a b  "),
        ("held 3996d8836e4948ba", "held 0123456789abcdef"),
        ("done in 4.1 s", "done in 12 s"),
        ("held 7s by", "held 12m 3s by"),
        ("on 127.0.0.1:4318, well", "on 127.0.0.1:40123, well"),
        ("at 2026-11-16 14:30:41.149+00:00", "at 2027-01-01T00:00:00Z"),
        ("...\nlast", "first\nsecond\nlast"),
        ("first\n...", "first\nsecond"),
    ],
)
def test_what_differs_from_run_to_run_is_masked(shown, printed):
    assert differs(shown, printed) == ""


@pytest.mark.parametrize(
    ("shown", "printed"),
    [
        ("a 3", "a 4"),
        ("a", "a\nb"),
        ("a\nb", "a"),
        ("...\nlast", "last\nbut one more"),
        ("a\nc", "a\nb\nc"),
    ],
)
def test_everything_else_is_compared(shown, printed):
    assert differs(shown, printed)


def test_a_reader_writes_files_runs_blocks_and_takes_ids_from_the_screen(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(PAGE)
    directory = tmp_path / "empty"
    directory.mkdir()
    Reader(directory, {}).follow(blocks_of(page))
    page.write_text(PAGE.replace("a: 1\n```\n\n```bash\necho", "a: 2\n```\n\n```bash\necho", 1))
    with pytest.raises(AssertionError, match="which is not printed there"):
        Reader(directory, {}).follow(blocks_of(page))
