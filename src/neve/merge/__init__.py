"""Changelog → mirror: reduce, locate, apply."""
