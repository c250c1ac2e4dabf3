"""OTLP requests to Arrow tables, and the schemas of those tables."""
