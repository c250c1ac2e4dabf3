"""Any version of a table, and every change between two."""
