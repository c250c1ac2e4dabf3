"""The durable log between receiving and consolidating: append, seal, read, retire.

A *stream* belongs to one run of one receiver and carries one signal; its segments are numbered
from 1 without gaps. A stream's name is never used again, so a number that a table has marked as
consumed never comes back with other data in it. A stream ends with a closing segment.

`buffer.Buffer` appends; `reader.BufferReader` lists, reads and retires, from any process.
"""
