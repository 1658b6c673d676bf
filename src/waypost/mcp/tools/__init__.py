"""The twelve tools: arguments, structured results, and what each does."""
