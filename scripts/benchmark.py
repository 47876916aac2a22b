"""Benchmarks of rankstruct; see `python scripts/benchmark.py --help`."""

import sys

from rankstruct.cli import main

if __name__ == "__main__":
    sys.exit(main(["benchmark", *sys.argv[1:]]))
