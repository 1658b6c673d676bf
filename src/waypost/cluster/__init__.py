"""A relay on a replicated log: JetStream as the log, followers, and ownership of a partition."""
