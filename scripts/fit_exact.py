"""Exact training along C; see `python scripts/fit_exact.py --help`."""

import sys

from rankstruct.cli import main

if __name__ == "__main__":
    sys.exit(main(["fit-exact", *sys.argv[1:]]))
