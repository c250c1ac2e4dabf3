"""Java classes by their full name.

`jvm.org.apache.iceberg.X` asks Java at each dot whether there is such a class, and Java looks for
it in hundreds of jars: half a millisecond and more for each name.
"""

from __future__ import annotations

from typing import Any

from py4j.java_gateway import JavaClass


def java_class(gateway: Any, name: str) -> Any:
    """Return a class, to be called or asked for its static methods. Nothing is looked up here."""
    return JavaClass(name, gateway._gateway_client)
