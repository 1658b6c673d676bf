"""One module per group of commands: parse arguments, call the backend, render the result."""
