"""Columns that are built once: for one Spark, and for what they were built from."""

from __future__ import annotations

from types import SimpleNamespace

from neve.merge.remembered import Remembered


def frame_of(context):
    return SimpleNamespace(sparkSession=SimpleNamespace(sparkContext=context))


def test_what_is_built_from_an_equal_key_is_built_once():
    remembered, spark = Remembered[object](), object()
    first = remembered.get(frame_of(spark), {"a": 1}, object)
    assert remembered.get(frame_of(spark), {"a": 1}, object) is first
    assert remembered.get(frame_of(spark), {"a": 2}, object) is not first


def test_another_spark_gets_columns_of_its_own():
    remembered = Remembered[object]()
    first = remembered.get(frame_of(object()), "key", object)
    assert remembered.get(frame_of(object()), "key", object) is not first
