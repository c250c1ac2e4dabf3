"""Sealed segments to one staged snapshot for each table, and on to `main`."""
