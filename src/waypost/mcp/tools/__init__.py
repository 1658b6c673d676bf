"""The eleven tools: arguments, structured results, and what each does."""
