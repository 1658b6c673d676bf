"""`./run bench report FILE`: tables and plots of a results file, on the terminal or in the docs."""

import argparse
import sys
import textwrap
from pathlib import Path
from typing import Any

from rich.console import Console

from bench.marks import marks_table
from bench.plots import MARKS_PICTURE, STEADY_PICTURE, plots
from bench.program import failed, missing, read_results
from bench.tables import WIDTH, Table

TERMINAL_WIDTH = 120
PAGE = Path("docs/benchmarks.md")
PICTURES = Path("docs/pictures")
BEGIN, END = "<!-- results: {name} -->\n", "<!-- end of results -->"


def show(results: dict[str, Any]) -> None:
    """Print all tables, the marks, and what is missing."""
    console = Console(width=None if sys.stdout.isatty() else TERMINAL_WIDTH)
    for name, found in results["benchmarks"].items():
        for table in tables_of(name, found):
            table.show(console)
    marks = marks_table(results)
    if marks.rows:
        marks.show(console)
    for peer, reason in missing(results).items():
        console.print(f"{peer}: {reason}", highlight=False, markup=False)
    for name, failure in failed(results).items():
        console.print(f"{name} failed: {failure}", highlight=False, markup=False)


def tables_of(name: str, found: dict[str, Any]) -> list[Table]:
    """Return the tables of one benchmark; none if it failed and returned nothing."""
    from bench.suite import BENCHMARKS

    if set(found) <= {"failure", "missing", "seconds"}:
        return []
    [benchmark] = [one for one in BENCHMARKS if one.name == name]
    return benchmark.tables(found)


def blocks(results: dict[str, Any]) -> dict[str, str]:
    """Return the Markdown of each block of the page that this run has results for."""
    found = {
        name: "\n\n".join(table.markdown() for table in tables)
        for name, one in results["benchmarks"].items()
        if (tables := tables_of(name, one))
    }
    machine = results["machine"]
    text = (
        f"Run of {results['started'][:10]} on {machine['cores']} cores ({machine['system']}"
        f" {machine['release']}, {machine['architecture']}, Python {machine['python']}), with a"
        f" load of {machine['load']:.1f} before it began."
    )
    marks = marks_table(results)
    if marks.rows:  # else both stay: they belong to another run
        found["machine"] = textwrap.fill(text, WIDTH)
        found["marks"] = marks.markdown()
    for name, picture in (("marks", MARKS_PICTURE), ("steady", STEADY_PICTURE)):
        if name in found:
            found[name] += f"\n\n![{picture.title}]({PICTURES.name}/{picture.name}.svg)"
    return found


def replace_blocks(page: str, blocks: dict[str, str]) -> str:
    """Return the page with new content between the markers of each block that it has."""
    for name, text in blocks.items():
        before, begin, rest = page.partition(BEGIN.format(name=name))
        _, end, after = rest.partition(END)
        if begin and end:
            page = f"{before}{begin}\n{text}\n\n{end}{after}"
    return page


def main() -> None:
    """Print the tables of a results file, or draw them into the page."""
    parser = argparse.ArgumentParser(prog="./run bench report", description=__doc__)
    parser.add_argument("file", type=Path, help="a results file of ./run bench")
    parser.add_argument(
        "--docs", action="store_true", help=f"draw tables into {PAGE}, plots into {PICTURES}"
    )
    options = parser.parse_args()
    results = read_results(options.file)
    if not options.docs:
        show(results)
        return
    if results["quick"]:
        parser.error("a quick run is too rough for the docs: run ./run bench without --quick")
    PAGE.write_text(replace_blocks(PAGE.read_text(), blocks(results)))
    for name, svg in plots(results).items():
        (PICTURES / f"{name}.svg").write_text(svg)
    print(f"wrote {PAGE} and {PICTURES}/bench-*.svg")


if __name__ == "__main__":
    main()
