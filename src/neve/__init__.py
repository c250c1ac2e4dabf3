"""Neve: loose data in, clean Apache Iceberg tables out."""
