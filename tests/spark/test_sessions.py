"""Lakes on several threads: one Spark, and settings that stay each one's own."""

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import neve

SETTING = "spark.sql.shuffle.partitions"


def test_lakes_on_two_threads_work_at_once_and_share_no_settings(embedded_lake):
    both = Barrier(2)

    def work(partitions):
        with neve.open(embedded_lake.settings) as lake:
            both.wait(60)
            lake.spark.conf.set(SETTING, str(partitions))
            both.wait(60)
            rows = lake.query("SELECT id % 3 AS k, count(*) AS n FROM range(9) GROUP BY 1")
            both.wait(60)
            return lake.spark.conf.get(SETTING), sorted(rows["n"].to_pylist())

    before = embedded_lake.spark.conf.get(SETTING)
    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(work, (3, 5)))
    assert found == [("3", [3, 3, 3]), ("5", [3, 3, 3])]
    assert embedded_lake.spark.conf.get(SETTING) == before
