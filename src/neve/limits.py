"""The limits on what a sender may cause, in one place, each with its reason.

A request costs what it weighs: it is counted on the wire before anything is built from it, and
refused by these counts. Limits that users set are settings (`receive`, `buffer`); what is here are
their defaults and the bounds they must agree with.
"""

from __future__ import annotations

KIB = 1024
MIB = 1024 * KIB

# One request, before and after decompression: what the OTLP specification recommends.
DEFAULT_REQUEST_BYTES = 64 * MIB
# The largest `receive.max_request_bytes`. JSON writes some bytes as six (\u0000), and
# an Arrow string array holds 2 GiB: a longer request could not be decoded.
LARGEST_REQUEST_BYTES = 256 * MIB

# All requests in progress, as received and as unpacked: what bounds the receiver's memory.
IN_FLIGHT_BYTES = 128 * MIB
# Requests of one signal that wait for their commit.
PENDING_BYTES = 64 * MIB

# Requests of one signal that a receiver knows again, at 40 bytes each: 6,600 a second for the 300 s
# of `receive.dedup_seconds`. Past it, the oldest are forgotten early; consolidation knows them.
DEDUP_REQUESTS = 2_000_000

# Dead letters: a sender of unusable records must not fill the disk. Past it the oldest go.
DEAD_LETTERS_BYTES = 1024 * MIB

# Records of one request that no table can hold: its dead letter names each, in some 100 bytes. With
# more of them, the request becomes a dead letter as a whole: 20 KiB could write 100 MiB.
MAX_UNFIT_RECORDS = 10_000

# A record that says anything takes a dozen bytes, so no honest request of 64 MiB has this many.
MAX_RECORDS = 1_000_000
# Messages inside messages: the limit of protobuf's own parsers.
MAX_DEPTH = 100

# The shortest `receive.tokens`: 16 characters, even of a hexadecimal token, are 64 bits, which
# nobody guesses over a network.
TOKEN_CHARACTERS = 16
# The longest name of a sender: it is a label of metrics and stands in every buffered request.
SENDER_NAME_CHARACTERS = 64
# A sender with a `max_bytes_per_second` may send this many seconds' worth at once: exporters send
# in batches, every five seconds by default.
SENDER_BURST_SECONDS = 5
# Resources, scopes and metrics: no more of them than of records.
MAX_CONTAINERS = MAX_RECORDS
# Attributes, events, links, exemplars, quantiles, members of arrays and maps, in one request: one
# for each 16 bytes of the largest request by default. As columns, each takes about 100 bytes.
MAX_PARTS = DEFAULT_REQUEST_BYTES // 16
# The same in one record: it becomes one row, which readers hold in memory whole. SDKs allow 128
# attributes by default.
MAX_RECORD_PARTS = 65_536
# Bucket counts and bounds, in one request and in one record; each takes 8 bytes as a column.
MAX_NUMBERS = DEFAULT_REQUEST_BYTES // 4
MAX_RECORD_NUMBERS = 1_000_000
# Rows repeat what their resource, scope and metric say: a few bytes can ask for any number of
# copies. Consolidation takes about 2 s of a core for each GiB. 60,000 logs under a resource of
# 10 kB are 0.6 GiB.
MAX_REPEATED_BYTES = 8 * 1024 * MIB
# A JSON request: it is parsed in one go, which keeps everything else waiting, /healthz too.
MAX_JSON_BYTES = 16 * MIB
# Values of a JSON request: each takes up to 500 bytes while the request is translated.
MAX_JSON_VALUES = 500_000
# Of one gzip body: a client that compresses in blocks writes a member for each.
MAX_GZIP_MEMBERS = 10_000

# A request of at most so many unpacked bytes is checked on the event loop, which takes 2 ms; others
# are checked on a thread, one at a time, so that no more than one of them is unpacked at a moment.
INLINE_BYTES = 512 * KIB
# JSON takes fifty times as long as protobuf.
INLINE_JSON_BYTES = 16 * KIB
# The head of an HTTP request: request line and headers. It is held outside the budget.
MAX_HEAD_BYTES = 16 * KIB
# Requests that a connection may send before the first of them is answered.
MAX_PIPELINED_REQUESTS = 16
# A body that is refused before it has arrived is read and thrown away up to here, which keeps the
# connection for the next request; behind that the connection is closed.
MAX_DISCARDED_BYTES = MIB
# Connections, HTTP and gRPC together. One costs about 14 KiB, and at most 16 KiB of incomplete
# headers; with TLS 290 KiB, since Python's asyncio has a buffer of 256 KiB for each. So all of them
# stay below 300 MiB.
MAX_CONNECTIONS = 8_000
MAX_TLS_CONNECTIONS = 1_000
# Descriptors that are not for connections: the buffer's streams, segments and directories, files
# that are read, the metrics page, standard streams. At rest that is about 20.
RESERVED_DESCRIPTORS = 64
# A TLS handshake, and the first bytes of HTTP/2: clients send them at once.
HANDSHAKE_SECONDS = 10.0

# gRPC calls in progress: on a connection (as many as gRPC's own servers advise), and in all. A call
# costs about 4 KiB besides its message, which the budget counts.
CALLS_PER_CONNECTION = 100
MAX_CALLS = 1_000
# All headers of a call, names and values: the most that gRPC's C core accepts.
HEADER_LIST_BYTES = 16 * KIB
# The table of headers sent before, on either side (HTTP/2's default).
HEADER_TABLE_BYTES = 4096
# A DATA frame of HTTP/2. Its bytes are taken as they arrive, so that large ones hold nothing more,
# and fewer of them are less work. grpc-go sends 16 KiB whatever we allow.
FRAME_BYTES = 256 * KIB
# How much a client may send before it is told to go on, for a call and for a connection: enough for
# 20 MB/s at a round trip of 50 ms.
CALL_WINDOW_BYTES = 1 * MIB
CONNECTION_WINDOW_BYTES = 4 * MIB
# Under pressure, an unfinished message must grow by this much in this time, or it makes room.
PROGRESS_BYTES = 64 * KIB
STALL_SECONDS = 1.0
# Frames that carry no telemetry (PING, SETTINGS, RST_STREAM, fragments): a connection may send
# FRAME_BURST of them at once, FRAMES_PER_SECOND in the long run, and FRAMES_PER_CALL for each call
# that was answered. Clients that measure the bandwidth send two or three a call.
FRAME_BURST = 1_000
FRAMES_PER_SECOND = 100
FRAMES_PER_CALL = 4
# A reset counts as several: opening the call was work, and may have stored its message.
RESET_FRAMES = 5
# A DATA frame below this size is a fragment, unless it is the last of its call.
FRAGMENT_BYTES = 256

# Exporters send every few seconds, metrics every minute. A connection is closed when it had no call
# for IDLE_SECONDS. Silence for PING_SECONDS is followed by a PING, and by the end of the connection
# when nothing arrives within PING_TIMEOUT_SECONDS.
IDLE_SECONDS = 300.0
PING_SECONDS = 60.0
PING_TIMEOUT_SECONDS = 20.0
# A load balancer spreads connections, not calls: after this time, up to a tenth more or less, a
# client is asked to connect anew. Its calls have CONNECTION_GRACE_SECONDS to finish: more than a
# request may take to arrive and to be stored.
CONNECTION_AGE_SECONDS = 1800.0
CONNECTION_GRACE_SECONDS = 60.0
# How long to wait for a client to read that it should go, and to close its side.
GOAWAY_SECONDS = 1.0
CLOSE_SECONDS = 5.0
# Processes of one receiver. Each takes about 100 MB and what `IN_FLIGHT_BYTES` allows; more than
# there are cores gain nothing.
MAX_WORKERS = 64
# What the decoder reads at once: enough to keep Arrow's kernels busy. A longer request is read
# alone.
DECODE_GROUP_BYTES = 16 * MIB
# An empty span takes 2 bytes in a request, and 250 in memory when it is read.
DECODE_GROUP_RECORDS = 1_000_000
# Rows that the decoder makes at once, as Arrow has them in memory. What a resource says is repeated
# on each of its rows, so that a small request may become many gigabytes; those come in such parts.
DECODED_PART_BYTES = 64 * MIB
