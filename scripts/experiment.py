"""Run an experiment from one config: trainers over folds and seeds, tables with significance tests, plots, a report.

    python scripts/experiment.py --config experiment-measures --data.path LETOR --processes 2

A config is a file, or the name of one of `configs/experiment-*.yaml`.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path

from rankstruct.cli import run
from rankstruct.commands._arguments import CommandParser, add_cluster_options, configs_of, with_names

PROGRAM = "experiment.py"
CONFIGS = configs_of(Path(__file__).parents[1] / "configs", "experiment-*")


def main(args: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit status."""
    return run("experiment", experiment, args, program=PROGRAM, configs=CONFIGS)


def experiment(args: Sequence[str]) -> None:
    """Run, print the tables, write them, plots and `report.html`."""
    parser = CommandParser(
        prog=PROGRAM,
        description="Run an experiment from a config: trainers over folds and seeds, tables with significance, plots, a report. "
        "Finished cells are kept: after a kill the same command goes on. "
        "Options that are not listed here replace values of the config, such as --data.path FOLDER.",
    )
    parser.add_argument("--config", required=True, help="config of the experiment, or its name in the folder configs")
    parser.add_argument("--output", help="folder of results (default: runs/<name of the config>)")
    parser.add_argument(
        "--processes", type=int, help="cells at once, one thread each (default: 1, or all of a cluster)"
    )
    add_cluster_options(parser)
    only = "only these, and the config's baselines and reference"
    parser.add_argument("--trainers", nargs="+", metavar="NAME", help=only)
    options, rest = parser.parse_known_args(args)

    # Imported here: `--help` starts without torch, workers without plotting, and Ctrl-C is answered from the start.
    from papers.plan import read_plan
    from papers.report import write_report
    from papers.run import read_results, run_experiment
    from rankstruct.commands.cells import CellsFailed
    from rankstruct.commands.cluster import cluster

    output = Path(options.output or Path("runs") / Path(options.config).stem)
    start, failure = time.perf_counter(), None
    plan = read_plan(options.config, rest)
    if options.trainers:
        plan = plan.only(options.trainers)
    try:
        with cluster(options.on, options.address):
            results = run_experiment(plan, output, processes=options.processes)
    except CellsFailed as error:
        failure, results = error, read_results(output, plan)
    typed = ["python", "scripts/experiment.py", *with_names(args, CONFIGS)]
    print(write_report(plan, results.records, output, title=Path(options.config).stem, command=typed))
    if results.unused:
        print(f"{results.unused} finished cells of other requests are in {output / 'results.jsonl'} and not used")
    training = sum(record["seconds"] for record in results.records.values())
    took = f"took {time.perf_counter() - start:.0f} s; training took {training:.0f} s"
    print(f"{took}, summed over {len(results.records)} cells")
    print(f"written: {output / 'report.html'}, {output / 'tables'}, {output / 'figures'}")
    if failure is not None:
        raise failure


if __name__ == "__main__":
    sys.exit(main())
