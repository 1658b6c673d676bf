"""The tables of a lake: each module has a NAME, a SCHEMA and a `build` that makes the rows.

`registry.TABLES` lists them in build order.
"""
