"""How far the tables of `waypost pipeline stream` are behind a relay, hour after hour."""
