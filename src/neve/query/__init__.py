"""Read the lake with SQL: on Spark, or without a JVM where that answers the same."""
