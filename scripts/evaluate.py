"""Measure scores or runs against labels or qrels; see `python scripts/evaluate.py --help`."""

import sys

from rankstruct.cli import main

if __name__ == "__main__":
    sys.exit(main(["evaluate", *sys.argv[1:]]))
