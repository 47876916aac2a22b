"""`rankstruct fuse`: fuse the runs of several systems into one, by a formula or by a ranker learned from judged queries."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import get_args

from rankstruct.commands._options import EVALUATED, parser_of
from rankstruct.commands.evaluate import evaluate_joined
from rankstruct.data import join_run, read_qrels, read_run, write_run
from rankstruct.data.text import PACKED
from rankstruct.estimators import LinearRanker
from rankstruct.fusion import Method, fuse_runs, learn_fusion
from rankstruct.messages import did_you_mean
from rankstruct.models import load_scorer, save_scorer
from rankstruct.text_tables import format_table

_METHODS = (*get_args(Method), "learned")


def main(args: Sequence[str]) -> None:
    """Write the fused run, and the scorer if it was learned; with qrels, print the measures of it and of each run."""
    parser = parser_of("fuse")
    given = parser.parse_args(args[1:])
    if len(given.runs) < 2:
        parser.error("expected two or more runs, got 1")
    read = [*given.runs, given.method, *([given.qrels] if given.qrels else [])]
    if given.output.is_dir() or given.output.resolve() in {Path(path).resolve() for path in read}:
        parser.error(
            f"--output must be another file than the runs, --qrels and --method, and no folder, got {given.output}"
        )
    if given.output.suffix in PACKED:
        parser.error(f"--output is written as plain text, got {given.output}; remove {given.output.suffix}")
    scorer = Path(given.method) if given.method not in _METHODS else None
    if scorer is not None and not scorer.is_file():
        parser.error(
            f"--method must be one of {', '.join(_METHODS)}, or the file of a scorer, got {given.method}"
            f"{did_you_mean(given.method, _METHODS)}"
        )
    if given.method == "learned" and not given.qrels:
        parser.error("--method learned needs --qrels, the judgements to learn from")
    learned = given.output.with_suffix(".pt")
    if given.method == "learned" and given.output == learned:
        parser.error(f"--output must not end in .pt, which is the suffix of the scorer, got {given.output}")
    if given.method == "learned" and learned.exists():
        parser.error(f"{learned} exists, where --method learned saves the scorer; use another --output, or delete it")
    runs = [read_run(path) for path in given.runs]
    qrels = read_qrels(given.qrels) if given.qrels else None
    ranker = None
    if qrels is not None and given.method == "learned":
        ranker, fused = learn_fusion(runs, qrels, LinearRanker(loss=given.loss))
    else:
        options = {name: getattr(given, name) for name in ("normalisation", "k") if getattr(given, name) is not None}
        fused = fuse_runs(runs, given.method if scorer is None else load_scorer(scorer), **options)
    systems, measures = [], given.measures or EVALUATED
    if qrels is not None:  # all that can be wrong with them is told before anything is written
        named = zip([*given.runs, given.output], [*runs, fused], strict=True)
        systems = [evaluate_joined(str(path), join_run(run, qrels), measures) for path, run in named]
    if ranker is not None:
        save_scorer(ranker.to_scorer(), learned)
    write_run(given.output, fused, tag="learned" if scorer else given.method)
    print(f"fused {len(runs)} runs of {len(fused)} queries, {sum(map(len, fused.values()))} documents: {given.output}")
    if ranker is not None:
        print(f"the scorer, for runs of the same systems in this order: {learned}")
        print(
            "judged queries are scored by rankers fitted without them, in five folds; so their measures are of new queries"
        )
    if systems:
        rows = [[each.name, *each.means().values(), len(each.qids)] for each in systems]
        print(format_table(["run", *measures, "queries"], rows))
        print(f"`rankstruct evaluate {given.output} {given.runs[0]} --qrels {given.qrels}` tests the difference of two")
