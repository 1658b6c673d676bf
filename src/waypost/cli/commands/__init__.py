"""One module for each family of verbs: arguments in, facts fetched, facts shown."""
