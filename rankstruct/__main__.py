"""`python -m rankstruct` is the console command."""

import sys

from rankstruct.cli import main

if __name__ == "__main__":
    sys.exit(main())
