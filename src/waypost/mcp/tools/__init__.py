"""The eight tools: arguments, structured results, and what each does."""
