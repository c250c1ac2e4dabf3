"""The OTLP 1.x protocol without a server: signals, encodings, requests and answers."""
