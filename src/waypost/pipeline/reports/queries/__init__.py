"""Questions to the tables of a lake. Each answer is a few hundred rows at most."""
