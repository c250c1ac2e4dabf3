"""Hand many content files to Iceberg in one call from Python: the loop over them runs in Java."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from neve.lake.jvm.java_classes import java_class

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
        nodes = java_class(self._gateway, f"{_ICEBERG}.util.JsonUtil").mapper().readTree(document)
        file_class, row_delta = self._iceberg_class(file_type), self._iceberg_class("RowDelta")
        handles, handle = self._invoke_class("MethodHandles"), self._invoke_class("MethodHandle")
        method_type = self._invoke_class("MethodType").methodType
        call = (
            handles.publicLookup()
            .findVirtual(row_delta, method, method_type(row_delta, file_class))
            .bindTo(self._delta)
        )
        parse = self._parser.asType(method_type(file_class, self._load_class(_JSON_NODE)))
        parse_and_call = handles.filterArguments(call, 0, self._array(handle, parse))
        consumer = self._invoke_class("MethodHandleProxies").asInterfaceInstance(
            self._load_class("java.util.function.Consumer"), parse_and_call
        )
        nodes.forEach(consumer)

    @cached_property
    def _parser(self) -> Any:
        """Return `ContentFileParser.fromJson` as a function of a JSON node alone."""
        handles = self._invoke_class("MethodHandles")
        of_specs = self._array(self._java_class("Class"), self._load_class("java.util.Map"))
        parse = handles.publicLookup().findStatic(
            self._iceberg_class("ContentFileParser"),
            "fromJson",
            self._invoke_class("MethodType").methodType(
                self._iceberg_class("ContentFile"), self._load_class(_JSON_NODE), of_specs
            ),
        )
        specs = self._array(self._java_class("Object"), self._specs)
        return handles.insertArguments(parse, 1, specs)

    def _java_class(self, name: str) -> Any:
        return java_class(self._gateway, f"java.lang.{name}")

    def _invoke_class(self, name: str) -> Any:
        return self._java_class(f"invoke.{name}")

    def _iceberg_class(self, name: str) -> Any:
        if name not in self._classes:
            self._classes[name] = self._load_class(f"{_ICEBERG}.{name}")
        return self._classes[name]

    def _array(self, element_type: Any, element: Any) -> Any:
        array = self._gateway.new_array(element_type, 1)
        array[0] = element
        return array
