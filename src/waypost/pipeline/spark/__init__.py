"""Spark: session and Java, packages for the executors, shuffle partitions, progress."""
