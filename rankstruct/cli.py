"""The console command `rankstruct`: training, evaluation, cross-validation, comparison, experiments, benchmarks."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from rankstruct._version import __version__

_USAGE = """usage: rankstruct COMMAND [OPTIONS]

  fit              train a ranker, or a factorisation of ratings, from a config file, then test the best checkpoint
  validate, test   measure a checkpoint
  predict          write scores and a TREC run file; of a factorisation also recommendations
  cross-validate   train over folds and a grid, select on validation, report the test folds
  fit-exact        train linear and kernel rankers to the optimum, along C and over folds
  certify          how far a run of SGD is from the optimum of its objective
  experiment       whole experiments: trainers and baselines over folds, tables with significance, plots, a report
  compare          cross-validate several configs, one line of a table each
  evaluate         measure scores or a run against labels or qrels; compare two
  benchmark        time the losses against torch.sort

fit, validate, test and predict take --config FILE, or --run FOLDER for an earlier run.
`rankstruct COMMAND --help` tells the options.
"""


def main(args: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit status."""
    args = list(sys.argv[1:] if args is None else args)
    # Each command imports what it needs: evaluation starts without Lightning.
    if not args or args[0] in ("-h", "--help"):
        print(_USAGE)
        return 0 if args else 2
    if args[0] == "--version":
        print(f"rankstruct {__version__}")
    elif args[0] == "evaluate":
        from rankstruct.experiments.evaluation import main as evaluate

        return evaluate(args[1:])
    elif args[:2] == ["benchmark", "losses"]:
        from rankstruct.experiments.loss_benchmark import main as benchmark_losses

        return benchmark_losses(args[2:])
    elif args[:2] == ["benchmark", "exact"]:
        from rankstruct.experiments.exact_benchmark import main as benchmark_exact

        return benchmark_exact(args[2:])
    elif args[0] == "benchmark":
        from rankstruct.experiments.benchmarks import main as benchmark

        return benchmark(args[1:])
    elif args[0] == "cross-validate":
        from rankstruct.experiments.cross_validation import main as cross_validate

        return cross_validate(args[1:])
    elif args[0] == "fit-exact":
        from rankstruct.experiments.exact import main as fit_exact

        return fit_exact(args[1:])
    elif args[0] == "certify":
        from rankstruct.experiments.certification import main as certify

        return certify(args[1:])
    elif args[0] == "experiment":
        from rankstruct.experiments.experiment import main as experiment

        return experiment(args[1:])
    elif args[0] == "compare":
        from rankstruct.experiments.comparison import main as compare

        return compare(args[1:])
    elif args[0] in ("fit", "validate", "test", "predict"):
        from rankstruct.training.cli import main as train

        train(args)
    else:
        print(_USAGE, file=sys.stderr)
        print(f"rankstruct: unknown command {args[0]!r}", file=sys.stderr)
        return 2
    return 0
