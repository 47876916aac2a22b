"""`rankstruct rank`: select and train a ranker on files of lists, test it, write a folder with a model card.

Inputs are checked before training, so that nothing fails after it. The folder has `scorer.pt` and `ranker.pkl`, written right
after training, a model card (`README.md`) and, written last, `result.json`, which marks a complete folder. If the test or the
card fails, `trained.json` describes the trained model, so that the same command resumes from there and `predict` accepts the
folder.
"""

from __future__ import annotations

import argparse
import copy
import json
import pickle
import platform
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch

from rankstruct._version import __version__
from rankstruct.commands._arguments import CommandParser
from rankstruct.commands._options import RANKED, column_options, parser_of
from rankstruct.commands.cells import Cell, CellFolders
from rankstruct.commands.files import Files, find_files
from rankstruct.commands.page_rules import DocumentRules, rule_section, rule_table, rules_of
from rankstruct.commands.rank_clicks import ClickFiles, click_section
from rankstruct.cut_off import CutOff
from rankstruct.data import DataError, RankingData
from rankstruct.data.formats import TABLE_OPTIONS, suffix_of
from rankstruct.data.predictions import read_for_model, write_predictions
from rankstruct.data.record import list_marks
from rankstruct.diagnostics import check_measures, draw_reliability, judge_probabilities
from rankstruct.estimators import AutoRanker
from rankstruct.estimators.auto import SELECTION
from rankstruct.estimators.base import as_seed
from rankstruct.estimators.training_data import dense
from rankstruct.files import check_room, whole_file, write_text
from rankstruct.measures import evaluate, nDCG, parse_measure
from rankstruct.messages import shortened
from rankstruct.models import PreparedScorer, load_scorer, save_scorer
from rankstruct.statistics import bootstrap_interval
from rankstruct.text_tables import format_table

_LISTS = 1000  # scored at once
_HELD_OUT = 0.2  # of the training lists, for a cut-off
_TRAINED, _SHOWN, _RANKS, _RELIABILITY = "trained.json", "shown.txt", "ranks.txt", "reliability.png"
_MODEL = ("scorer.pt", "ranker.pkl")
_ROOM = 2**20, 2**16  # least size of the folder in bytes, and per feature


def rank(
    files: Files,
    output: str | Path,
    measures: Sequence[str],
    *,
    cut_off: CutOff | None = None,
    rules: DocumentRules | None = None,
    verbose: bool = False,
    **options: Any,
) -> tuple[dict[str, Any], bool]:
    """Train an `AutoRanker`, test it, and write a folder; the finished folder of the same request is only read.

    Args:
        files: the lists.
        output: the output folder.
        measures: measures for the test lists.
        cut_off: which documents to show, to be learned from a fifth of the training lists, which then train nothing.
        rules: for pages of the test lists, and of those that `predict` ranks.
        verbose: whether to show a progress bar.
        options: options of `AutoRanker`.

    Returns:
        The content of `result.json`, and whether it was there before.

    Raises:
        ValueError: a file is malformed, a measure does not accept its labels, there are too few lists for the cut-off, or the
            folder has other files, damaged ones, or the result of another request. If raised after training, the message has the
            path of the ranker.
    """
    names = [parse_measure(name).name for name in measures]
    ranker = AutoRanker(**options, verbose=verbose)
    ranker.check_options()
    request = _request(files, names, ranker, cut_off, rules)
    folder = Path(output)
    there = {path.name for path in folder.glob("*") if path.suffix != ".part"} - {".lock"}
    if there and "request.json" not in there:
        raise ValueError(f"{output} has files that this command did not write; use another --output")
    with CellFolders(output) as store:
        cell = Cell(".", request, (), outputs=_MODEL)
        if (known := store.find(cell)) is None:
            store.begin(cell)
            try:
                lists = files.read()
                _check_labels(files, lists, ranker, names, rules)
                given, held = lists, None
                if cut_off is not None:
                    given, held = _hold_out(cut_off, files, lists, as_seed(ranker.random_state))
                if _TRAINED not in store.outputs(cell):
                    check_room(output, _ROOM[0] + _ROOM[1] * lists["train"].num_features)
                    _train(ranker, files, given, folder, lambda: store.seal(cell, [_TRAINED, *_MODEL]), cut_off, held)
                result = _finish(folder, files, lists, names, request, rules)
                store.keep(cell, result)
            except BaseException:
                store.give_up(cell)
                raise
            (folder / _TRAINED).unlink(missing_ok=True)
        elif not (folder / "README.md").is_file():
            _write_card(folder, known, request)
    return (result, False) if known is None else (known, True)


def _request(
    files: Files, measures: Sequence[str], ranker: AutoRanker, cut_off: CutOff | None, rules: DocumentRules | None
) -> dict[str, Any]:
    """All that the result depends on: digests and formats of the files, how they are read, and every option."""
    return {
        "data": files.digests(),
        "formats": {name: suffix_of(path) for name, path in files.given().items()},
        "measures": list(measures),
        "options": {
            name: value
            for name, value in ranker.get_params().items()
            if name != "verbose" and (name, value) != ("calibrate", None)  # not an option of earlier versions
        },
        "reading": {"zero_based": False, **dict.fromkeys(TABLE_OPTIONS), **files.reading},
        "clicks": files.options if isinstance(files, ClickFiles) else None,
        **({} if cut_off is None else {"cut_off": cut_off.options}),  # not an option of earlier versions
        **({} if rules is None else {"constraints": rules.described()}),
    }


def _check_labels(
    files: Files,
    lists: dict[str, RankingData],
    ranker: AutoRanker,
    measures: Sequence[str],
    rules: DocumentRules | None,
) -> None:
    """Raise ValueError for labels that a model, the selection or the test, also under rules, would reject after training."""
    paths = files.given()
    from_clicks = isinstance(files, ClickFiles)
    for part in () if from_clicks else ("train", "vali"):
        labels = lists[part].labels if part in lists else np.zeros(0)
        wrong = np.flatnonzero(~np.isfinite(nDCG(10).document_gains(torch.tensor(labels)).numpy()))
        if wrong.size:
            at, data = int(wrong[0]), lists[part]
            qid = shortened(data.qids[data.list_of(at)])
            raise DataError(
                f"{paths[part]}: expected labels whose gain in nDCG@10, 2^label - 1, is finite, since models are trained for and "
                f"evaluated by it, whatever --measures; got {labels[at]:g} in query {qid}: use grades, such as 0 to 4"
            )
    if not from_clicks:
        chosen = {str(paths[part]): data for part, data in lists.items() if part != "test"}
        check_measures(chosen, [ranker._measure(lists["train"].labels)], "--measures")
    if "test" in lists:
        check_measures({str(paths["test"]): lists["test"]}, measures, "--measures")
        if rules is not None:
            _ruled(rules, lists["test"].labels, lists["test"], measures, paths["test"])  # of true scores


def _hold_out(
    cut_off: CutOff, files: Files, lists: dict[str, RankingData], seed: int
) -> tuple[dict[str, RankingData], RankingData]:
    """The lists without those that learn the cut-off, and these.

    Raises:
        DataError: they are too few to reach the target, whatever the scores.
    """
    train, path = lists["train"], files.given()["train"]
    drawn = np.random.default_rng(seed).permutation(train.num_lists)[: max(1, round(_HELD_OUT * train.num_lists))]
    if len(drawn) == train.num_lists:
        raise DataError(
            f"{path}: --cut-off holds training lists out, and there are {train.num_lists}; add lists, or remove it"
        )
    held_out = np.isin(np.arange(train.num_lists), drawn)
    held = train.select(held_out)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # said of the true scores, if it is so of them
        try:
            copy.copy(cut_off).fit(held.labels, held.labels, offsets=held.offsets)  # the best scores that there are
        except ValueError as error:
            counted = "" if cut_off.target[0] == "precision" else ", and those with relevant documents count"
            raise DataError(
                f"{path}: --cut-off holds out {held.num_lists} of {train.num_lists} training lists{counted}: {error}"
            ) from None
    return {**lists, "train": train.select(~held_out)}, held


def _learned(
    cut_off: CutOff, scorer: torch.nn.Module, held: RankingData, training: list[RankingData], path: Path
) -> dict[str, Any]:
    """What held-out lists tell of the cut-off for a scorer, for `result.json`; without a threshold if no number shows enough."""
    scores, remarks = _scores(scorer, held, path), []
    if again := _number_again(held, training):
        remarks.append(
            f"{again} of {held.num_lists} lists that learned the cut-off are also training lists: it may show too little"
        )
    learned = copy.copy(cut_off)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            learned.fit(scores, held.labels, offsets=held.offsets)
        except ValueError as error:  # of this scorer; the ranker is complete without
            return {"options": cut_off.options, "remarks": [*remarks, f"no cut-off was learned: {error}"]}
    shown = learned.predict(scores, offsets=held.offsets)
    return {
        "options": learned.options,
        "held_out": learned.held_out_,
        "lists": learned.num_lists_,
        "left_out": learned.num_empty_,
        "shown": int(shown.sum()) / held.num_lists,
        "documents": held.num_documents / held.num_lists,
        "remarks": [*remarks, *(str(each.message) for each in said)],
    }


def _train(
    ranker: AutoRanker,
    files: Files,
    lists: dict[str, RankingData],
    output: Path,
    seal: Callable[[], None],
    cut_off: CutOff | None,
    held: RankingData | None,
) -> None:
    """Fit, and save the result before anything else can fail; `seal` records that all of it is written.

    The lists `held` only learn the cut-off.
    """
    start = time.perf_counter()
    given = files.arguments(lists)
    ranker.fit(**given)
    names, features = files.feature_names(), lists["train"].num_features
    found = {
        "measure": parse_measure(ranker.measure_).name,
        "model": ranker.selected_,
        "reason": ranker.reason_,
        "models": ranker.results_,
        "validation_lists": ranker.validation_lists_,
        "seconds": time.perf_counter() - start,
        "features": features,
        "feature_names": names,
        **({"clicks": files.described(given)} if isinstance(files, ClickFiles) else {}),
        **files.reading,
        "versions": {
            "rankstruct": __version__,
            **{name: version(name) for name in ("torch", "numpy", "scikit-learn")},
            "python": platform.python_version(),
        },
    }
    if names is not None and len(names) == features:
        ranker.feature_names_in_ = np.array(names, dtype=object)  # to be compared with the columns of data frames
    save_scorer(ranker.to_scorer(), output / "scorer.pt")
    with _kept(output):
        if cut_off is not None and held is not None:
            training, path = [data for name, data in lists.items() if name != "test"], files.given()["train"]
            found["cut_off"] = _learned(cut_off, load_scorer(output / "scorer.pt"), held, training, path)
        write_text(output / _TRAINED, json.dumps(found, indent=2))
        with whole_file(output / "ranker.pkl", "wb") as file:
            pickle.dump(ranker, file)
        seal()


def _is_trained(folder: Path) -> bool:
    return _TRAINED in CellFolders(folder).written(".")


def _finish(
    output: Path,
    files: Files,
    lists: dict[str, RankingData],
    measures: Sequence[str],
    request: dict[str, Any],
    rules: DocumentRules | None,
) -> dict[str, Any]:
    """Test the saved scorer and write the model card; returns the content of `result.json`."""
    with _kept(output):
        found = result_of(output) | {"test": {}, "remarks": []}
        found["lists"] = {name: [each.num_lists, each.num_documents] for name, each in lists.items()}
        if "clicks" in found:
            found["lists"]["clicks"] = [found["clicks"]["queries"], found["clicks"]["documents"]]
        if rules is not None:
            found["constraints"] = {"rules": request["constraints"]["rules"]}
        if "test" in lists:
            scorer = load_scorer(output)
            scores = _scores(scorer, lists["test"], files.given()["test"])
            labels, offsets = lists["test"].labels, lists["test"].offsets
            tested = _summed(evaluate(scores, labels, list(measures), offsets=offsets))
            found |= {"test": tested, "remarks": _remarks(lists)}
            if rules is not None:
                found["constraints"] |= _ruled(rules, scores, lists["test"], measures, files.given()["test"])
            if (step := getattr(scorer, "calibration", None)) is not None:
                found["probabilities"] = judge_probabilities(step.predict(scores).numpy(), lists["test"])
        _write_card(output, found, request)
    return found


def _write_card(folder: Path, result: dict[str, Any], request: dict[str, Any]) -> None:
    """Write the model card and its figure."""
    if judged := result.get("probabilities"):
        with whole_file(folder / _RELIABILITY, "wb") as file:
            draw_reliability(judged).savefig(file, format="png")
    write_text(folder / "README.md", model_card(result, request))


@contextmanager
def _kept(output: Path) -> Iterator[None]:
    """Add to an error that the scorer is saved, and how the same command continues."""
    try:
        yield
    except (ValueError, OSError, MemoryError) as error:
        goes_on = "resumes from there" if _is_trained(output) else "trains again"
        raise ValueError(
            f"{str(error) or type(error).__name__}; the scorer is trained and saved in {output}/scorer.pt; the same command "
            f"{goes_on}" + (", and `rankstruct predict --run` accepts the folder" if has_scorer(output) else "")
        ) from error


def _scores(scorer: torch.nn.Module, data: RankingData, path: Path) -> np.ndarray:
    """Scores `[documents]` of the lists of a file, in batches; raises DataError if one is not finite."""
    parts = []
    with torch.inference_mode():
        for first in range(0, data.num_lists, _LISTS):
            part = data.select(np.arange(first, min(first + _LISTS, data.num_lists)))
            features = torch.tensor(dense(part.features), dtype=torch.float32)
            parts.append(scorer(features, offsets=torch.tensor(part.offsets)))
    scores: np.ndarray = torch.cat(parts).numpy()
    wrong = np.flatnonzero(~np.isfinite(scores))
    if wrong.size:
        qid = shortened(data.qids[data.list_of(int(wrong[0]))])
        raise DataError(
            f"{path}: expected features that the model can score, got a score of {scores[wrong[0]]} in query {qid}: some are far "
            "outside the range of the training data; correct or remove such documents"
        )
    return scores


def _ruled(
    rules: DocumentRules, scores: np.ndarray, test: RankingData, measures: Sequence[str], path: Path
) -> dict[str, Any]:
    """The measures under rules, and how many test lists break each before and after."""
    found = rules.report(scores, test.labels, measures, test.offsets, test.qids, test.docids, path)
    return {"values": _summed(found.values), "before": found.before, "after": found.after}


def _summed(values: Mapping[str, torch.Tensor]) -> dict[str, Any]:
    """Mean and interval of each measure."""
    found = {name: each.numpy() for name, each in values.items()}
    return {name: {"mean": float(v.mean()), "interval": list(bootstrap_interval(v))} for name, v in found.items()}


def _remarks(lists: dict[str, RankingData]) -> list[str]:
    """Caveats of the test: test lists used in training, features constant in training, no relevant documents."""
    test, known = lists["test"], [data for name, data in lists.items() if name != "test"]
    again = _number_again(test, known)
    ranges = [_ranges(data) for data in known]
    low, high = np.min([least for least, _ in ranges], axis=0), np.max([most for _, most in ranges], axis=0)
    new = np.flatnonzero((low == high) & (np.array(_ranges(test)) != low).any(axis=0)) + 1
    remarks = []
    if again:
        remarks.append(
            f"{again} of {test.num_lists} test lists are also training lists: they say nothing about new lists"
        )
    if new.size:
        shown = ", ".join(map(str, new[:5])) + (f" and {new.size - 5} more" if new.size > 5 else "")
        kind = f"feature {shown} is" if new.size == 1 else f"features {shown} are"
        remarks.append(f"{kind} constant in the training data but not in the test data: nothing was learned from that")
    if not (test.labels > 0).any():
        remarks.append("no test document is relevant: every measure is 0 for any ranking")
    return remarks


def _number_again(lists: RankingData, others: list[RankingData]) -> int:
    """How many lists are also among others."""
    marks = list_marks(lists)
    return int(((marks != 0) & np.isin(marks, np.concatenate([list_marks(data) for data in others]))).sum())


def _ranges(data: RankingData) -> tuple[np.ndarray, np.ndarray]:
    """The minimum and maximum of each feature, `[d]`."""
    if not data.num_documents:
        return np.zeros(data.num_features), np.zeros(data.num_features)
    if data.is_sparse:
        return np.ravel(dense(data.features.min(axis=0))), np.ravel(dense(data.features.max(axis=0)))
    return np.fmin.reduce(data.features), np.fmax.reduce(data.features)  # of those that are not missing


def has_scorer(folder: Path) -> bool:
    """Whether a folder has a scorer of this command, tested or not, and is not that of a run."""
    found = any((folder / name).is_file() for name in ("result.json", _TRAINED))
    return found and (folder / "scorer.pt").is_file() and not (folder / "config.yaml").is_file()


def result_of(folder: Path) -> dict[str, Any]:
    """The training record or the result of a folder."""
    path = next(path for name in (_TRAINED, "result.json") if (path := folder / name).is_file())
    try:
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(found, dict) or "features" not in found:
            raise ValueError("it does not say what features the scorer takes")
    except ValueError as error:
        raise ValueError(f"{path} is damaged ({error}); delete the folder and train again") from error
    return found


def predict(folder: Path, args: Sequence[str]) -> None:
    """`rankstruct predict --run FOLDER` for such a folder: write `scores.txt` and `run.txt` to it, as for a run.

    With a ranker that was trained with `--calibrate`, also `probabilities.txt`; with `--cut-off`, `shown.txt`, a line with 1 for
    each document that is shown and 0 for the others; with `--constraints`, if `--columns` are given, `ranks.txt`.

    Labels are ignored and may be any numbers; tables may lack them.

    Raises:
        ValueError: the file is malformed, or its features differ from the scorer's.
    """
    parser = CommandParser(prog=f"rankstruct predict --run {folder}")
    parser.add_argument("--data.predict_path", dest="path", metavar="FILE", required=True, help="lists to score")
    parser.add_argument("--columns", metavar="FILE", help="groups of the documents, for rules for a page")
    given = parser.parse_args(args)
    path = Path(given.path)
    CellFolders(folder).check_outputs(".")
    scorer, result = load_scorer(folder), result_of(folder)
    texts = result.get("constraints", {}).get("rules")
    if given.columns is not None and texts is None:
        raise ValueError(f"--columns has no effect, since {folder} was trained without --constraints; remove it")
    rules = DocumentRules.read(texts, given.columns) if given.columns is not None else None
    columns = scorer.preparation.columns if isinstance(scorer, PreparedScorer) else None
    reading = {name: result[name] for name in ("zero_based", "label", "qid", "categorical") if name in result}
    data = read_for_model(path, result.get("feature_names"), result["features"], columns, **reading)
    scores = _scores(scorer, data, path)
    ranks = None if rules is None else rules.ranks(data, scores, path)
    for line in write_predictions(folder, data, scores, getattr(scorer, "calibration", None)):
        print(line)
    for name in (_SHOWN, _RANKS):
        (folder / name).unlink(missing_ok=True)  # of other lists
    if (cut_off := fitted_cut_off(result)) is not None:
        shown = cut_off.predict(scores, offsets=data.offsets)
        write_text(folder / _SHOWN, "".join(f"{each:d}\n" for each in shown.tolist()))
        print(f"shown of these documents: {int(shown.sum())}, those with 1 in {folder / _SHOWN}")
    elif "cut_off" in result:
        print(result["cut_off"]["remarks"][-1])
    if ranks is not None:
        write_text(folder / _RANKS, "".join(f"{each}\n" for each in ranks.tolist()))
        print(f"ranks of these documents under rules: {folder / _RANKS}")
    elif texts is not None:
        print("ranked by score; --columns FILE, with the groups of these documents, ranks them under the rules")


def model_table(result: dict[str, Any]) -> tuple[list[str], list[list[Any]]]:
    """Header and rows of the candidate models: selection scores, seconds, why one was left out."""
    names = list(result["models"][0]["validation"])  # the first is never left out
    rows = [
        [row["model"], *(row["validation"].get(name, "") for name in names), f"{row['seconds']:.1f}", row["note"]]
        for row in result["models"]
    ]
    return ["model", *(f"selection {name}" for name in names), "seconds", "left out"], rows


def test_table(result: dict[str, Any]) -> tuple[list[str], list[list[Any]]]:
    """Header and rows of the test measures."""
    rows = [[name, each["mean"], *each["interval"]] for name, each in result["test"].items()]
    return ["measure", "test mean", "95 % from", "to"], rows


def model_card(result: dict[str, Any], request: dict[str, Any]) -> str:
    """The model card: the model, its training and test data, test results and how to load it."""
    digests = [[name, *result["lists"].get(name, ("", "")), digest] for name, digest in request["data"].items()]
    data = format_table(["part", "lists", "documents", "SHA-256, first 16"], digests, "github")
    tested = "There were no test lists."
    if result["test"]:
        tested = f"""{format_table(*test_table(result), "github")}

Means over the test lists; ties in expectation, lists without relevant documents as 0; 95 % bootstrap intervals over lists."""
        tested += "".join(f"\n\n**Warning**: {remark}." for remark in result["remarks"])
    if judged := result.get("probabilities"):
        tested += f"\n\n{_probability_section(judged)}"
    versions = ", ".join(map(" ".join, result["versions"].items()))
    chosen = {**request["options"], "measure": result["measure"]}
    joined = "of training and validation " if "vali" in result["lists"] else ""
    dealt = f"The {result['validation_lists']} lists {joined}were"
    if result["validation_lists"] == 1:
        dealt = "The documents of the one list were"
    features, options = result["features"], (" ".join(map(str, each)) for each in chosen.items())
    return f"""# A ranker: {result["model"]}

{result["reason"]}.

## Data

{data}

{features} raw features per document. {dealt} split into folds; hyperparameters and model were selected by cross-validation.

{click_section(result["clicks"]) if "clicks" in result else ""}## Test

{tested}

{_cut_off_section(result) if "cut_off" in result else ""}{rule_section(result)}## Candidate models

{format_table(*model_table(result), "github")}

{SELECTION[0].upper()}{SELECTION[1:]}.

Options: {", ".join(options)}. Training took {result["seconds"]:.1f} s with {versions}.

{_use_section(result)}"""


def _use_section(result: dict[str, Any]) -> str:
    """The part of the model card on how to load the scorer."""
    features, shown, writes, named = result["features"], "", "writes the scores of the lists of a file", ""
    if (cut_off := fitted_cut_off(result)) is not None:
        shown = f"shown = rs.{cut_off!r}.predict(scores, offsets=torch.tensor([0, 10, 30]))\n"
        writes += " and which documents are shown"
    if result["feature_names"] is not None:
        named = (
            "Features are in the order of `feature_names` in `result.json`; "
            "`rs.data.read_lists(FILE, features=feature_names)` reads them in this order from any table.\n\n"
        )
    return f"""## Use

```python
import rankstruct as rs, torch

scorer = rs.load_scorer("scorer.pt")  # of raw features [..., list_size, {features}]; no code runs from the file
scores = scorer(torch.zeros(3, 10, {features}))  # the highest ranks first
scores = scorer(torch.zeros(30, {features}), offsets=torch.tensor([0, 10, 30]))  # flat lists; use where= for padded ones
{shown}```

{named}`rankstruct predict --run FOLDER --data.predict_path FILE`, with this folder, {writes}. \
`ranker.pkl` is the same model as an estimator, `pickle.load(file).predict(X, qid)`; a pickle can run code, so load only trusted
ones.
"""


def _probability_section(judged: dict[str, Any]) -> str:
    """The part of the model card on probabilities, with a reliability diagram."""
    values = [[name, *each] for name, each in judged["values"].items()]
    bins = [[f"{documents:.0f}", f"{mean:.3f}", f"{share:.3f}"] for documents, mean, share in judged["reliability"]]
    return f"""{format_table(["probabilities", "test", "95 % from", "to"], values, "github")}

{format_table(["documents", "mean probability", "share relevant"], bins, "github")}

![Reliability diagram]({_RELIABILITY})

Probabilities that a label is above 0, over all test documents, lower is better; well calibrated if both columns agree in each
row, a bin of about as many documents."""


def fitted_cut_off(result: dict[str, Any]) -> CutOff | None:
    """The cut-off of a result, if one was learned."""
    options = result.get("cut_off", {}).get("options", {})
    return CutOff(**options) if "threshold" in options else None


def _cut_off_said(result: dict[str, Any]) -> str:
    """What a cut-off was learned from and shows; of one that was not learned, the target."""
    known = result["cut_off"]
    cut_off = CutOff(**known["options"])
    name, share = cut_off.target
    sure = f"with probability {cut_off.confidence} over held-out lists"
    if cut_off.confidence is None:
        sure = "in expectation over held-out and new lists"
    said = f"the mean {name} of new lists is to be at least {share:g}, {sure}"
    if fitted_cut_off(result) is None:
        return said
    left_out = f" ({known['left_out']} more have no relevant documents)" if known["left_out"] else ""
    return (
        f"{said}; learned from {known['lists']} held-out training lists{left_out}, where it is {known['held_out']:.4f} and "
        f"{known['shown']:.1f} of {known['documents']:.1f} documents of a list are shown on average"
    )


def _cut_off_section(result: dict[str, Any]) -> str:
    """The part of the model card on which documents to show."""
    said, cut_off = _cut_off_said(result), fitted_cut_off(result)
    text = f"## Cut-off\n\n{said[0].upper()}{said[1:]}."
    if cut_off is not None:
        text += f""" These lists trained, selected and calibrated nothing.

Documents are shown by the rule {cut_off.rule!r} of `CutOff` from the threshold {cut_off.threshold_} on. The target holds for \
this scorer, and if new lists are drawn as the held-out ones were; nothing warns if queries or documents have changed."""
    return text + "".join(f"\n\n**Warning**: {remark}." for remark in result["cut_off"]["remarks"]) + "\n\n"


def _click_files(given: argparse.Namespace) -> ClickFiles:
    """The files of a click log."""
    if given.folder is not None or given.vali is not None:
        raise ValueError("--clicks takes --train, for features, and --test, but no FOLDER and no --vali")
    train, test = (None if path is None else Path(path) for path in (given.train, given.test))
    for path in (Path(given.clicks), train, test):
        if path is not None and not path.is_file():
            raise DataError(f"{path}: no such file")
    how = {} if given.propensities is None else {"propensities": given.propensities}
    return ClickFiles(
        train=train, test=test, clicks=Path(given.clicks), clip=given.clip, drop_missing=given.drop_missing, **how
    )


def main(args: Sequence[str]) -> None:
    """Train, test, write the folder and print the tables."""
    parser = parser_of("rank")
    given = parser.parse_args(args[1:])
    if given.folder is None and given.train is None and given.clicks is None:
        parser.error("give FOLDER, --train FILE or --clicks LOG")
    if given.clicks is not None:
        files: Files = _click_files(given)
    else:
        files = find_files(given.folder, given.fold, given.train, given.vali, given.test)
    files = replace(files, reading={"zero_based": given.zero_based, **column_options(given)})
    options = {
        "measure": given.measures[0] if given.measures else None,
        "mode": given.mode,
        "time_budget": given.time_budget,
        "random_state": given.seed,
        "calibrate": given.calibrate,
    }
    measures, rules = given.measures or RANKED, rules_of(given)
    try:
        result, before = rank(
            files, given.output, measures, cut_off=given.cut_off, rules=rules, verbose=True, **options
        )
    except KeyboardInterrupt:
        goes_on = "tests the trained model" if _is_trained(Path(given.output)) else "starts again"
        raise KeyboardInterrupt(f"stopped; {given.output} is incomplete, the same command {goes_on}") from None
    print(f"{result['reason']}\n")
    print(format_table(*model_table(result)))
    print(f"{SELECTION}\n")
    if given.measures is None:
        kind = "clicks" if "clicks" in result else "graded labels" if result["measure"] != "AP" else "binary labels"
        print(
            f"selected by {result['measure']}, the default for {kind}; --measures sets others, of which the first selects"
        )
    print()
    if result["test"]:
        print(format_table(*test_table(result)))
        print(f"over {result['lists']['test'][0]} test lists, with bootstrap intervals")
    if "values" in (known := result.get("constraints", {})):
        print(format_table(*test_table({"test": known["values"]})))
        print("under rules, relative to the best page of each list that keeps them")
        print(format_table(*rule_table(known["before"], known["after"])))
    if fitted_cut_off(result) is not None:
        print(f"cut-off: {_cut_off_said(result)}")
    for each in (result, result.get("cut_off", {})):
        for remark in each.get("remarks", []):  # missing in results of former versions
            print(f"warning: {remark}")
    done = "nothing was trained, the same request was finished before" if before else "written"
    print(
        f"training took {result['seconds']:.1f} s; {done}: {given.output}/README.md, scorer.pt, ranker.pkl, result.json"
    )
