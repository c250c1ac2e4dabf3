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

# A record that says anything takes a dozen bytes, so no honest request of 64 MiB has this many.
MAX_RECORDS = 1_000_000
# Messages inside messages: the limit of protobuf's own parsers.
MAX_DEPTH = 100

# What the decoder reads at once: enough to keep Arrow's kernels busy. A longer request is read
# alone.
DECODE_GROUP_BYTES = 16 * MIB
# An empty span takes 2 bytes in a request, and 250 in memory when it is read.
DECODE_GROUP_RECORDS = 1_000_000
# Rows that the decoder makes at once, as Arrow has them in memory. What a resource says is repeated
# on each of its rows, so that a small request may become many gigabytes; those come in such parts.
DECODED_PART_BYTES = 64 * MIB
