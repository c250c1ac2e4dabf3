"""Stage, audit, publish: exactly once."""
