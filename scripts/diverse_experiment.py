"""The diverse loss against training without groups; see `python scripts/diverse_experiment.py --help`."""

import sys

from rankstruct.experiments.diversity import main

if __name__ == "__main__":
    sys.exit(main())
