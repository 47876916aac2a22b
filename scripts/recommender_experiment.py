"""Recommenders on MovieLens 100K or Jester; see `python scripts/recommender_experiment.py --help`."""

import sys

from rankstruct.experiments.recommenders import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
