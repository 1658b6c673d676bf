"""`./run bench pipeline`: compares the Spark jobs with DuckDB, Polars and a sequential replay.

`__main__.py` is the program. `jobs.py` holds the measurements in their order, `journals.py` their
input. Each measurement runs in its own process: `processes.py` starts it, `measure.py` is its
program, and `spark_engine.py`, `duckdb_engine.py` and `polars_engine.py` do the work.
"""
