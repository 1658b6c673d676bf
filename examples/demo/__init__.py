"""`./run demo`: a dozen agents of different temper, one relay, and what comes of it."""
