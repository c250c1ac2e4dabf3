"""Records of many days in one file: Spark reads it by time, and compaction puts them into days."""

from collections import Counter

import neve
from neve.lake.far_days import MOST_DAYS
from tests.support.consolidation import Bench
from tests.support.lakes import sqlite_settings
from tests.unit.consolidate.test_far_days import files, send, wanted

DAYS = range(20)
ONE_DAY = "SELECT body FROM otel.logs WHERE timestamp >= '1999-03-04' AND timestamp < '1999-03-05'"


def test_spark_reads_far_days_and_rewrites_them_into_days(embedded_lake, tmp_path):
    with neve.open(sqlite_settings(tmp_path)) as lake:
        bench = Bench(lake, tmp_path)
        send(bench, DAYS, "a")
        bench.run()
        assert sorted(len(file.partition) for file in files(bench)) == [0, *[1] * MOST_DAYS]
        assert lake.query(ONE_DAY)["body"].to_pylist() == ["a 3"]
        assert bench.names("logs") == wanted(DAYS, "a")
        lake.query(
            "CALL system.rewrite_data_files(table => 'otel.logs', "
            "options => map('rewrite-all', 'true'))"
        )
        assert [len(file.partition) for file in files(bench)] == [1] * len(DAYS)
        assert lake.query(ONE_DAY)["body"].to_pylist() == ["a 3"]
        rows = lake.query("SELECT body FROM otel.logs")["body"].to_pylist()
        assert Counter(rows) == wanted(DAYS, "a")
