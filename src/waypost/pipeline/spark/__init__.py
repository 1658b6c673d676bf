"""Starting Spark: Java, the session, what executors need, and showing how far a job is."""
