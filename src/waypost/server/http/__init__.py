"""The relay over HTTP: `contract` says what an operation is, `table` lists them all, `routing`
serves them."""
