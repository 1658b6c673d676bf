"""Results as text for people. One module per module of `commands`, and `console` for all."""
