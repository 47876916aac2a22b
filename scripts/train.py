"""Train, validate, test, predict; see `python scripts/train.py --help`."""

import sys

from rankstruct.cli import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
