"""Builders, fakes and oracles that tests share."""
