"""Tell when Java no longer needs an object: no DataFrame, view or cache holds it."""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

from pyspark.sql import SparkSession

# By the gateway to a JVM: the queue of references whose objects are gone, and the names of all.
_WATCHED: WeakKeyDictionary[Any, tuple[Any, Any]] = WeakKeyDictionary()


def watch(session: SparkSession, java_object: Any, name: str) -> None:
    """Give an object a name, to be returned by `unreachable` when its time has come."""
    queue, names = _watched(session)
    jvm: Any = session._jvm
    # Java forgets a reference that nobody holds, so the map must hold it.
    names.put(jvm.java.lang.ref.WeakReference(java_object, queue), name)


def unreachable(session: SparkSession) -> list[str]:
    """Return the names of objects that Java has collected since the last call."""
    queue, names = _watched(session)
    collected = []
    while (reference := queue.poll()) is not None:
        collected.append(str(names.remove(reference)))
    return collected


def _watched(session: SparkSession) -> tuple[Any, Any]:
    jvm: Any = session._jvm
    gateway = session.sparkContext._gateway
    if gateway not in _WATCHED:
        queue = jvm.java.lang.ref.ReferenceQueue()
        _WATCHED[gateway] = queue, jvm.java.util.concurrent.ConcurrentHashMap()
    return _WATCHED[gateway]
