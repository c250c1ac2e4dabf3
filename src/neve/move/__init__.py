"""Move tables between catalogs and stores: plan, copy, rewrite, verify, register."""
