"""What a merge does about what others do meanwhile, without a table."""

from types import SimpleNamespace

import pytest

from neve.errors import ConflictError
from neve.lake.commit_loop import RetryPolicy
from neve.merge import merger as merger_module
from neve.merge.merger import Merger
from neve.merge.report import TableReport


def test_what_others_have_expired_is_looked_at_again(monkeypatch):
    """They wrote the mirror anew and expired what was looked at, before its files were read."""
    looks = []

    def look_at_expired(*arguments, **keys):
        looks.append(keys["known"])
        raise FileNotFoundError("metadata/snap-1.avro")

    monkeypatch.setattr(merger_module, "look", look_at_expired)
    retry = RetryPolicy(attempts=3, first_seconds=0.001, most_seconds=0.001)
    merger, report = Merger(None, SimpleNamespace(name="shop.orders"), retry), TableReport("")
    with pytest.raises(ConflictError, match=r"shop\.orders: .*snap-1\.avro"):
        merger.merge(report=report)
    assert looks == [None] * 3
    assert report.conflicts == 3
