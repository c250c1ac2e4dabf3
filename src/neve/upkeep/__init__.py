"""Keep tables small and clean: expire snapshots, discard what nobody can publish."""
