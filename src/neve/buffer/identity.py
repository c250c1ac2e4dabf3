"""The identity of a buffer: an id made once, which is part of the name of each of its streams.

Several buffers may feed the same tables. The id tells whose stream a table's mark belongs to.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from neve.buffer.layout import IDENTITY, is_buffer_id, new_buffer_id
from neve.errors import CorruptionError, NotFoundError

if TYPE_CHECKING:
    from neve.buffer.store import BufferStore


def read_identity(store: BufferStore) -> str | None:
    """Return the buffer's id; None if it has none yet.

    Raises:
        CorruptionError: the file is damaged.
    """
    try:
        content = store.read(IDENTITY)
    except NotFoundError:
        return None
    identity = content.decode("ascii", errors="replace").strip()
    if not is_buffer_id(identity):
        raise CorruptionError(
            f"the buffer's file {IDENTITY} is damaged: it holds no id of 16 hexadecimal digits",
            hint="write the id back that the names of its streams begin with; if there is none, "
            "remove the file and a new id is made",
        )
    return identity


def ensure_identity(store: BufferStore) -> str:
    """Return the buffer's id, made now if it has none. Durable on return.

    Of several processes that make one at once, one wins and all return that one.

    Raises:
        CorruptionError: the file is damaged. It is never made anew.
    """
    identity = read_identity(store)
    if identity is None:
        store.put_new(IDENTITY, f"{new_buffer_id()}\n".encode())
        identity = read_identity(store)
    if identity is None:
        raise NotFoundError(f"the buffer's file {IDENTITY} was removed while it was made")
    return identity
