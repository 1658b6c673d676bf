"""`./run bench`: all benchmarks in one run, with one results file."""

import argparse
import sys
from collections.abc import Sequence

from bench.program import Benchmark, add_options, run
from bench.suite import BENCHMARKS


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Parse the arguments of a whole run; `only` is the list of the chosen benchmarks."""
    names = [benchmark.name for benchmark in BENCHMARKS]
    parser = argparse.ArgumentParser(prog="./run bench", description=__doc__)
    add_options(parser)
    parser.add_argument(
        "--only", metavar="NAME,NAME", help=f"only some of them: {', '.join(names)}"
    )
    parser.add_argument("--minutes", help="length of the steady load")
    options = parser.parse_args(arguments)
    options.only = options.only.split(",") if options.only else _default(quick=options.quick)
    if unknown := [name for name in options.only if name not in names]:
        parser.error(f"no benchmark {unknown[0]!r}; choose from {', '.join(names)}")
    return options


def _default(*, quick: bool) -> list[str]:
    """Return the names of all benchmarks; for a quick run of those that start quickly."""
    return [one.name for one in BENCHMARKS if one.in_quick_run or not quick]


def main() -> None:
    """Run all benchmarks, or those that `--only` names."""
    options = parse(sys.argv[1:])
    left_out = [one.name for one in BENCHMARKS if not one.in_quick_run]
    if options.only == _default(quick=True):
        print(f"left out of a quick run: {', '.join(left_out)} (--only runs them)", file=sys.stderr)

    def options_of(benchmark: Benchmark) -> argparse.Namespace:
        longer = benchmark.name == "steady" and options.minutes is not None
        arguments = ["--minutes", options.minutes] if longer else []
        return benchmark.options(arguments, quick=options.quick)

    run([one for one in BENCHMARKS if one.name in options.only], options, options_of)


if __name__ == "__main__":
    main()
