"""Ingest and build in DuckDB: SQL over the same files, written as Parquet by day.

Most queries are the oracles of the tests of the tables. Where such a query is written for clarity,
not for speed, `queries/` has a faster one. All have the relay in their keys.
"""

from collections.abc import Iterator
from pathlib import Path

import duckdb

from bench.pipeline.columns import BUDGET, DEFAULTS, LINE

_FASTER = Path(__file__).parent / "queries"
_ORACLES = Path(__file__).parents[2] / "tests/pipeline/tables/queries"
TABLES = (
    "messages",
    "rejections",
    "breakers",
    "sessions",
    "traffic",
    "pairs",
    "pressure",
    "senders",
    "inboxes",
    "latency",
    "dead_letters",
    "threads",
)
_TYPES = {
    "string": "VARCHAR",
    "strings": "VARCHAR[]",
    "bigint": "BIGINT",
    "int": "INTEGER",
    "boolean": "BOOLEAN",
}


def ingest(data: str, out: str, relays: list[str]) -> dict[str, int]:
    """Write the events of a journal once for each of `relays`; return their number."""
    copies = " UNION ALL ".join(_events(data, relay) for relay in relays)
    to = _to(f"{out}/events", ", WRITE_PARTITION_COLUMNS true")
    written = _connect(out).execute(f"COPY ({copies}) {to}").fetchone()
    assert written is not None
    return {"events": written[0]}


def build(lake: str, out: str) -> dict[str, int]:
    """Write the tables of a lake; return the numbers of their rows."""
    base = _connect(out)
    files = f"{lake}/events/*/*.parquet"  # all of them: the lake has no tables yet
    base.execute((_FASTER / "line.sql").read_text().replace("$files", f"'{files}'"))
    rows = {}
    for table in TABLES:
        query = _query(table)
        if table in {"messages", "pairs"}:  # other tables read these
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


def _to(directory: str, more: str = "") -> str:
    return f"TO '{directory}' (FORMAT parquet, COMPRESSION zstd, PARTITION_BY (day){more})"


def _query(table: str) -> str:
    own = _FASTER / f"{table}.sql"
    return (own if own.exists() else _ORACLES / f"{table}.sql").read_text()


def _events(data: str, relay: str) -> str:
    types = [f"\"{name}\": '{_TYPES[kind]}'" for name, kind in LINE.items()]
    budget = ", ".join(f"{name} {_TYPES[kind]}" for name, kind in BUDGET.items())
    read = f"columns = {{{', '.join(types)}, ids: 'VARCHAR[]', budget: 'STRUCT({budget})'}}"
    each = "coalesce(ids, [id])"
    split = (  # a line with ids stands for several events, and has the seq of the last
        f"SELECT * EXCLUDE (id, seq), unnest({each}) AS id,"
        f" seq - len({each}) + generate_subscripts({each}, 1) AS seq"
    )
    return (
        f"SELECT '{relay}' AS relay,"
        " regexp_extract(filename, '([0-9]+)[.]jsonl$', 1)::BIGINT AS segment,"
        f" {', '.join(_columns())}, make_timestamp(at_us)::DATE AS day"
        f" FROM ({split} FROM read_json('{data}/journal/*.jsonl',"
        f" format = 'newline_delimited', filename = true, {read}) WHERE kind <> 'commit')"
    )


def _columns() -> Iterator[str]:
    """Return the columns of an event, with defaults for omitted fields."""
    for name in LINE:
        cases = DEFAULTS.get(name, ())
        whens = " ".join(f"WHEN kind IN {_list(one.kinds)} THEN {one.value!r}" for one in cases)
        column = f'coalesce("{name}", CASE {whens} END)' if whens else f'"{name}"'
        yield f'{column} AS "{name}"'
    for name in BUDGET:
        yield f"budget.{name} AS {'ttl_ms' if name == 'ttl' else name}"


def _list(values: tuple[str, ...]) -> str:
    return "(" + ", ".join(f"'{value}'" for value in values) + ")"
