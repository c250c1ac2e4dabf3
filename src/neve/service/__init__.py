"""The long-running side: signals, supervision, and what both tell about themselves."""
