"""The ten tools: arguments, structured results, and what each does."""
