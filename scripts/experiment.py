"""Experiments from configs; see `python scripts/experiment.py --help`."""

import sys

from rankstruct.cli import main

if __name__ == "__main__":
    sys.exit(main(["experiment", *sys.argv[1:]]))
