"""Hand many content files to Iceberg in one call from Python: the loop over them runs in Java."""

from __future__ import annotations

from functools import cached_property
from typing import Any

_ICEBERG = "org.apache.iceberg"
_JSON_NODE = f"{_ICEBERG}.shaded.com.fasterxml.jackson.databind.JsonNode"


class ContentFileLoop:
    """Calls a method of a `RowDelta` with each content file of a JSON document.

    In Java this is `nodes.forEach(node -> delta.method(parse(node, specs)))`. Java makes the lambda
    from method handles, since three calls over py4j for each of thousands of files take longer
    than the commit itself.
    """

    def __init__(self, gateway: Any, delta: Any, specs: Any) -> None:
        self._gateway = gateway
        self._delta = delta
        self._specs = specs
        self._classes: dict[str, Any] = {}
        self._load_class = delta.getClass().getClassLoader().loadClass

    def add_rows(self, data_files: str) -> None:
        self._for_each(data_files, "addRows", "DataFile")

    def remove_rows(self, data_files: str) -> None:
        self._for_each(data_files, "removeRows", "DataFile")

    def add_deletes(self, vectors: str) -> None:
        self._for_each(vectors, "addDeletes", "DeleteFile")

    def remove_deletes(self, vectors: str) -> None:
        self._for_each(vectors, "removeDeletes", "DeleteFile")

    def _for_each(self, document: str, method: str, file_type: str) -> None:
        if document == "[]":
            return
        nodes = self._gateway.jvm.org.apache.iceberg.util.JsonUtil.mapper().readTree(document)
        invoke = self._gateway.jvm.java.lang.invoke
        file_class, row_delta = self._iceberg_class(file_type), self._iceberg_class("RowDelta")
        method_type = invoke.MethodType.methodType
        call = (
            invoke.MethodHandles.publicLookup()
            .findVirtual(row_delta, method, method_type(row_delta, file_class))
            .bindTo(self._delta)
        )
        parse = self._parser.asType(method_type(file_class, self._load_class(_JSON_NODE)))
        parse_and_call = invoke.MethodHandles.filterArguments(
            call, 0, self._array(invoke.MethodHandle, parse)
        )
        consumer = invoke.MethodHandleProxies.asInterfaceInstance(
            self._load_class("java.util.function.Consumer"), parse_and_call
        )
        nodes.forEach(consumer)

    @cached_property
    def _parser(self) -> Any:
        """Return `ContentFileParser.fromJson` as a function of a JSON node alone."""
        java = self._gateway.jvm.java
        invoke = java.lang.invoke
        of_specs = self._array(java.lang.Class, self._load_class("java.util.Map"))
        parse = invoke.MethodHandles.publicLookup().findStatic(
            self._iceberg_class("ContentFileParser"),
            "fromJson",
            invoke.MethodType.methodType(
                self._iceberg_class("ContentFile"), self._load_class(_JSON_NODE), of_specs
            ),
        )
        specs = self._array(java.lang.Object, self._specs)
        return invoke.MethodHandles.insertArguments(parse, 1, specs)

    def _iceberg_class(self, name: str) -> Any:
        if name not in self._classes:
            self._classes[name] = self._load_class(f"{_ICEBERG}.{name}")
        return self._classes[name]

    def _array(self, element_type: Any, element: Any) -> Any:
        array = self._gateway.new_array(element_type, 1)
        array[0] = element
        return array
