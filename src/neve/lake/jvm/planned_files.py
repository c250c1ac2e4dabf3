"""What reads chosen data files of a snapshot, found by the file's path; the loops run in Java.

Handing the tasks over to Python takes several calls for each of thousands of files.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import cached_property
from typing import Any

_ICEBERG = "org.apache.iceberg"
_FUNCTION = f"{_ICEBERG}.relocated.com.google.common.base.Function"
# In no path, since no file system takes it.
_SEPARATOR = "\0"


class PlannedFiles:
    """The scan tasks of some data files of a snapshot. May be used by several threads.

    Args:
        snapshot_id: None: the table has no snapshot, and no files.
        wanted: paths of the files; no task of any other is kept, however many the table has.
    """

    def __init__(
        self, gateway: Any, table: Any, snapshot_id: int | None, wanted: Collection[str]
    ) -> None:
        self._jvm = gateway.jvm
        self._gateway = gateway
        self._load_class = table.getClass().getClassLoader().loadClass
        self.paths: frozenset[str] = frozenset()
        if snapshot_id is None or not wanted:
            return
        planned = table.newScan().useSnapshot(snapshot_id).planFiles()
        location = self._location
        iterable = self._jvm.org.apache.iceberg.io.CloseableIterable
        chosen = iterable.filter(planned, self._is_of(location, wanted))
        try:
            self._tasks = self._guava.collect.Maps.uniqueIndex(chosen, self._function(location))
        finally:
            planned.close()
        paths = self._jvm.java.lang.String.join(_SEPARATOR, self._tasks.keySet())
        self.paths = frozenset(paths.split(_SEPARATOR) if paths else ())

    def tasks(self, paths: Sequence[str]) -> Any:
        """Return a Java list of what reads these files, which must be in the snapshot."""
        lists = self._guava.collect.Lists
        return lists.newArrayList(lists.transform(self._java_list(paths), self._get))

    def _java_list(self, paths: Collection[str]) -> Any:
        splitter = self._guava.base.Splitter.onPattern(_SEPARATOR)
        return splitter.splitToList(_SEPARATOR.join(paths))

    def _is_of(self, location: Any, wanted: Collection[str]) -> Any:
        """Return `task -> wanted.contains(location(task))`."""
        anything, text, boolean = (
            self._load_class(f"java.lang.{n}") for n in ("Object", "String", "Boolean")
        )
        truth = boolean.getField("TYPE").get(None)
        contains = self._lookup.findVirtual(
            self._load_class("java.util.Set"), "contains", self._method_type(truth, anything)
        ).bindTo(self._jvm.java.util.HashSet(self._java_list(wanted)))
        test = self._handles.filterReturnValue(
            location, contains.asType(self._method_type(truth, text))
        )
        return self._proxy("java.util.function.Predicate", test)

    @property
    def _guava(self) -> Any:
        return self._jvm.org.apache.iceberg.relocated.com.google.common

    @property
    def _location(self) -> Any:
        """Return `task -> task.file().location()`."""
        task, file = (
            self._load_class(f"{_ICEBERG}.{n}") for n in ("ContentScanTask", "ContentFile")
        )
        text = self._load_class("java.lang.String")
        file_of = self._lookup.findVirtual(task, "file", self._method_type(file))
        location = self._lookup.findVirtual(file, "location", self._method_type(text))
        return self._handles.filterReturnValue(file_of, location)

    @cached_property
    def _get(self) -> Any:
        """Return `path -> tasks.get(path)`."""
        anything = self._load_class("java.lang.Object")
        get = self._lookup.findVirtual(
            self._load_class("java.util.Map"), "get", self._method_type(anything, anything)
        )
        return self._function(get.bindTo(self._tasks))

    def _function(self, handle: Any) -> Any:
        return self._proxy(_FUNCTION, handle)

    def _proxy(self, interface: str, handle: Any) -> Any:
        proxies = self._jvm.java.lang.invoke.MethodHandleProxies
        return proxies.asInterfaceInstance(self._load_class(interface), handle)

    def _method_type(self, *types: Any) -> Any:
        return self._jvm.java.lang.invoke.MethodType.methodType(*types)

    @property
    def _handles(self) -> Any:
        return self._jvm.java.lang.invoke.MethodHandles

    @property
    def _lookup(self) -> Any:
        return self._handles.publicLookup()
