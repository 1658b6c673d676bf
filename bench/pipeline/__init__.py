"""`./run bench pipeline`: the Spark jobs beside DuckDB, Polars and a plain replay.

`__main__.py` is what is run; `jobs.py` says what is measured in which order, `journals.py` on
what. Each measurement is a process of its own, started by `processes.py`; `measure.py` is what
such a process runs, and `on_spark.py`, `on_duckdb.py`, `on_polars.py` do the work in it.
"""
