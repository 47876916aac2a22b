"""`rankstruct explain`: what features contribute to the difference of the scores of two documents of a list."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from rankstruct.commands._options import column_options, parser_of
from rankstruct.commands.export import read_for_scorer
from rankstruct.diagnostics import panels
from rankstruct.estimators.training_data import dense
from rankstruct.files import whole_file
from rankstruct.messages import did_you_mean, shortened
from rankstruct.models import Contributions, explain_scorer, load_scorer
from rankstruct.models.scorers import scores_of

_PLOTS, _BARS = (".pdf", ".png", ".svg"), 20


def main(args: Sequence[str]) -> None:
    """Print the contributions for the documents of `--documents`, or the two best ones of the list."""
    given = parser_of("explain").parse_args(args[1:])
    if given.plot is not None and given.plot.suffix not in _PLOTS:
        raise ValueError(f"--plot must end with {', '.join(_PLOTS)}, got {str(given.plot)!r}")
    scorer = load_scorer(given.run)
    data = read_for_scorer(scorer, given.data, **column_options(given))
    qids = data.qids.tolist()
    if given.query is None and len(qids) > 1:
        raise ValueError(f"--query must name one of the {len(qids)} lists, such as {shortened(qids[0])}; got none")
    at = 0 if given.query is None else _place("--query", given.query, qids)
    first, last = data.offsets[at : at + 2].tolist()
    names = [""] * (last - first) if data.docids is None else data.docids[first:last].tolist()
    names = [name or f"{qids[at]}-{place}" for place, name in enumerate(names, 1)]  # as in runs
    features = np.array(dense(data.features[first:last]), np.float32)
    if given.documents is None:
        with torch.inference_mode():
            scores = scores_of(scorer, torch.from_numpy(features), offsets=torch.tensor([0, last - first]))
        if len(scores) < 2:
            raise ValueError(f"list {shortened(qids[at])} has {len(scores)} documents, and two are compared")
        pair = scores.argsort(descending=True, stable=True)[:2].tolist()
    else:
        pair = [_place("--documents", name, names) for name in given.documents]
    (why,) = explain_scorer(scorer, features, [(pair[0], pair[1])], documents=names)
    print(why)
    if given.plot is not None:
        with whole_file(given.plot, "wb") as file:
            draw(why).savefig(file, format=given.plot.suffix[1:])
        print(f"written: {given.plot}")


def _place(option: str, name: str, known: list[str]) -> int:
    """The place of a name among those of the lists, or of the documents."""
    if (count := known.count(name)) != 1:
        there = f"; there are {', '.join(map(shortened, known[:5]))}{' and more' if len(known) > 5 else ''}"
        hint = f", of which there are {count}" if count else did_you_mean(name, known) or there
        raise ValueError(f"{option} must name one of {len(known)}, got {shortened(name)}{hint}")
    return known.index(name)


def draw(why: Contributions) -> Any:
    """A figure of the contributions, the largest on top, with the values of both documents."""
    rows = why.table(_BARS)[::-1]
    figure, (axis,) = panels(1, 1, 1 + 0.3 * max(len(rows), 1))
    figure.set_figwidth(7)
    sizes = [float(row[-1]) for row in rows]
    labels = [f"{row[0]}: {row[1]} | {row[2]}" if row[1] else row[0] for row in rows]
    axis.barh(labels, sizes, color=["tab:blue" if size > 0 else "tab:orange" for size in sizes])
    axis.axvline(0, color="black", linewidth=0.8)
    axis.set_xlabel("contribution to the difference of scores")
    axis.set_title(f"{why.documents[0]} | {why.documents[1]}: {why.scores[0]:.4g} | {why.scores[1]:.4g}")
    return figure
