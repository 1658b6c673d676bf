"""The relay over HTTP: `contract` defines an operation, `operations` lists all, `routing` serves.

See `handlers` for the operations themselves.
"""
