"""The thirteen tools: arguments, structured results, and what each does."""
