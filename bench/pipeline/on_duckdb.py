"""The same work in DuckDB: SQL over the same files, written as Parquet by day, too.

Most queries are those that judge Waypost's tables in its tests. Those that were written to be
obvious there, not to be quick, stand in `queries/` once more; all have the relay in their keys.
"""

from collections.abc import Iterator
from pathlib import Path

import duckdb

from bench.pipeline.columns import BUDGET, DEFAULTS, LINE, VIA

_OWN = Path(__file__).parent / "queries"
_JUDGING = Path(__file__).parents[2] / "tests/pipeline/tables/queries"
TABLES = (
    *("messages", "rejections", "breakers", "sessions", "traffic", "pairs", "pressure"),
    *("senders", "inboxes", "latency", "dead_letters"),
)
_TYPES = {
    "string": "VARCHAR",
    "strings": "VARCHAR[]",
    "bigint": "BIGINT",
    "int": "INTEGER",
    "boolean": "BOOLEAN",
}


def ingest(data: str, out: str, relays: list[str]) -> dict[str, int]:
    """Lines become events, for each of `relays` the same."""
    copies = " UNION ALL ".join(_events(data, relay) for relay in relays)
    written = _connect(out).execute(f"COPY ({copies}) {_to(f'{out}/events')}").fetchone()
    assert written is not None
    return {"events": written[0]}


def build(lake: str, out: str) -> dict[str, int]:
    """Events of a lake become tables; the number of their rows."""
    base = _connect(out)
    files = f"{lake}/events/day=*/batch=*/*.parquet"
    base.execute((_OWN / "line.sql").read_text().replace("$files", f"'{files}'"))
    rows = {}
    for table in TABLES:
        query = _query(table)
        if table in {"messages", "pairs"}:  # which other tables read
            base.execute(f"CREATE TABLE {table} AS {query}")
            query = f"FROM {table}"
        written = base.execute(f"COPY ({query}) {_to(f'{out}/{table}')}").fetchone()
        assert written is not None
        rows[table] = written[0]
    return rows


def _connect(out: str) -> duckdb.DuckDBPyConnection:
    Path(out).mkdir(parents=True)
    base = duckdb.connect(config={"temp_directory": f"{out}/spilled"})
    base.execute("SET preserve_insertion_order = false")
    return base


def _to(directory: str) -> str:
    return f"TO '{directory}' (FORMAT parquet, COMPRESSION zstd, PARTITION_BY (day))"


def _query(table: str) -> str:
    own = _OWN / f"{table}.sql"
    return (own if own.exists() else _JUDGING / f"{table}.sql").read_text()


def _events(data: str, relay: str) -> str:
    types = [f"\"{name}\": '{_TYPES[kind]}'" for name, kind in LINE.items()]
    budget = ", ".join(f"{name} {_TYPES[kind]}" for name, kind in BUDGET.items())
    read = f"columns = {{{', '.join(types)}, budget: 'STRUCT({budget})'}}"
    return (
        f"SELECT '{relay}' AS relay,"
        " regexp_extract(filename, '([0-9]+)[.]jsonl$', 1)::BIGINT AS segment,"
        f" {', '.join(_columns())}, make_timestamp(at_us)::DATE AS day"
        f" FROM read_json('{data}/journal/*.jsonl', format = 'newline_delimited',"
        f" filename = true, {read}) WHERE kind <> 'commit'"
    )


def _columns() -> Iterator[str]:
    """Every column of an event, with what its line left out."""
    for name in LINE:
        cases = VIA if name == "via" else (DEFAULTS[name],) if name in DEFAULTS else ()
        whens = " ".join(f"WHEN kind IN {_list(one.kinds)} THEN {one.value!r}" for one in cases)
        column = f'coalesce("{name}", CASE {whens} END)' if whens else f'"{name}"'
        yield f'{column} AS "{name}"'
    for name in BUDGET:
        yield f"budget.{name} AS {'ttl_ms' if name == 'ttl' else name}"


def _list(values: tuple[str, ...]) -> str:
    return "(" + ", ".join(f"'{value}'" for value in values) + ")"
