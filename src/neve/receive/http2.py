"""The server's side of HTTP/2, by h2, with our settings."""

from __future__ import annotations

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.settings import SettingCodes, Settings
from hyperframe.frame import GoAwayFrame, SettingsFrame, WindowUpdateFrame

from neve.limits import (
    CALL_WINDOW_BYTES,
    CALLS_PER_CONNECTION,
    CONNECTION_WINDOW_BYTES,
    FRAME_BYTES,
    HEADER_LIST_BYTES,
    HEADER_TABLE_BYTES,
)

HIGHEST_STREAM = 2**31 - 1
# Of a connection, before any WINDOW_UPDATE (RFC 9113, section 6.9.2).
DEFAULT_WINDOW = 65_535
ADVERTISED = {
    SettingCodes.MAX_CONCURRENT_STREAMS: CALLS_PER_CONNECTION,
    SettingCodes.INITIAL_WINDOW_SIZE: CALL_WINDOW_BYTES,
    SettingCodes.MAX_FRAME_SIZE: FRAME_BYTES,
    SettingCodes.MAX_HEADER_LIST_SIZE: HEADER_LIST_BYTES,
}
SETTINGS = SettingsFrame(
    0, settings={int(name): value for name, value in ADVERTISED.items()}
).serialize()
# To those who send OTLP/HTTP to the port of gRPC: 503, on which they keep their data.
HTTP1_ANSWER = (
    b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: text/plain\r\nconnection: close\r\n\r\n"
    b"This is the port of OTLP/gRPC (receive.grpc); OTLP/HTTP has its own (receive.http).\n"
)


class Http2(H2Connection):
    """A connection that bounds what h2 keeps, and leaves refusing calls to us."""

    # How many streams h2 remembers after their end. Its 65,536 would be 6 MB a connection.
    MAX_CLOSED_STREAMS = 10 * CALLS_PER_CONNECTION

    def __init__(self) -> None:
        super().__init__(
            H2Configuration(
                client_side=False,
                header_encoding=None,
                # h2 would end the connection, with all of its calls, for one header with a space at
                # its end, such as the token of a client whose variable ends with a newline.
                validate_inbound_headers=False,
                # Ours are right as they are.
                validate_outbound_headers=False,
                normalize_outbound_headers=False,
            )
        )
        # A client may send a 101st call before it has read our SETTINGS. h2 would end its
        # connection; we refuse the call.
        self.local_settings = Settings(
            client=False,
            initial_values={**ADVERTISED, SettingCodes.MAX_CONCURRENT_STREAMS: HIGHEST_STREAM},
        )
        self.decoder.max_header_list_size = HEADER_LIST_BYTES
        self.initiate_connection()
        # Without its own SETTINGS, which have the other number: the first bytes are `SETTINGS`.
        self.clear_outbound_data_buffer()
        self.increment_flow_control_window(CONNECTION_WINDOW_BYTES - DEFAULT_WINDOW)
        # Bytes of messages, which h2 never sees, that the client has not been credited for: of the
        # connection, and by stream.
        self._uncredited = 0
        self._uncredited_by_stream: dict[int, int] = {}
        self._window_updates = bytearray()

    def credit(self, stream_id: int, size: int, *, is_open: bool) -> None:
        """Let the client send as many bytes again, told once half of a window is used."""
        self._uncredited += size
        if self._uncredited >= CONNECTION_WINDOW_BYTES // 2:
            self._window_updates += WindowUpdateFrame(0, self._uncredited).serialize()
            self._uncredited = 0
        if is_open:
            uncredited = self._uncredited_by_stream.get(stream_id, 0) + size
            if uncredited >= CALL_WINDOW_BYTES // 2:
                self._window_updates += WindowUpdateFrame(stream_id, uncredited).serialize()
                uncredited = 0
            self._uncredited_by_stream[stream_id] = uncredited

    def forget_credit(self, stream_id: int) -> None:
        """The client sends no more on this stream."""
        self._uncredited_by_stream.pop(stream_id, None)

    def data_to_send(self, amount: int | None = None) -> bytes:
        """Return what is to be sent, credits first."""
        window_updates, self._window_updates = bytes(self._window_updates), bytearray()
        return window_updates + super().data_to_send(amount)

    def bound_header_table(self) -> None:
        """Keep the table of headers we sent small; the client may have allowed 4 GiB."""
        if self.encoder.header_table_size > HEADER_TABLE_BYTES:
            self.encoder.header_table_size = HEADER_TABLE_BYTES

    def room_to_send(self, stream_id: int) -> int:
        """Return how many bytes one DATA frame may have now."""
        return min(self.local_flow_control_window(stream_id), self.max_outbound_frame_size)


def goaway(last_stream: int, code: ErrorCodes = ErrorCodes.NO_ERROR, message: str = "") -> bytes:
    """Return a GOAWAY. After h2's own, h2 could not send the answers of calls in progress."""
    return GoAwayFrame(0, last_stream, int(code), message.encode()).serialize()
