"""OTLP over HTTP and gRPC: check, append to the buffer, answer as the specification says."""
