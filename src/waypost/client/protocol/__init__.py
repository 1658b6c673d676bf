"""The client without I/O: what to write, what arrived, when to try again. Time is an argument."""
