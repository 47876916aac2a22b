"""Contributions of features to a difference of scores: enumerated mixtures of documents, sums, tables, what is refused."""

import itertools
import math

import numpy as np
import pandas as pd
import pytest
import torch

import rankstruct as rs
from rankstruct import cli
from rankstruct.models import LinearScorer, explain_scorer

LISTS, SIZE, D = 30, 20, 4


def draw(missing=False):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(LISTS * SIZE, D)).astype(np.float32)
    X[:, 2] = rng.integers(0, 4, len(X))
    y = np.digitize(X[:, 0] * X[:, 1] + X[:, 2] - X[:, 3], [0.0, 1.5])
    if missing:
        X[rng.random(X.shape) < 0.2] = np.nan
    return X, y, np.repeat(np.arange(LISTS), SIZE)


def boosted(library="lightgbm", **more):
    return rs.BoostedRanker(n_estimators=15, num_leaves=8, min_child_samples=5, n_jobs=1, library=library, **more)


def mlp(**more):
    return rs.MLPRanker(max_epochs=2, hidden=(6, 4), seeds=2, device="cpu", **more)


def linear(*prepare):
    return rs.LinearRanker("AP", loss="GradedLoss('AUC')", prepare=prepare)


#: Whether training has missing cells.
RANKERS = {
    "linear": (linear, False),
    "linear, quantiles": (lambda: linear("append-quantile", "standardize"), True),
    "linear, bins": (lambda: linear("bins:4"), False),
    "lightgbm": (boosted, True),
    "lightgbm, prepared": (lambda: boosted(prepare=["encode", "append-quantile", "append-log"]), True),
    "lightgbm, of a start": (lambda: boosted(start=linear("standardize")), False),
    "xgboost": (lambda: boosted("xgboost"), True),
    "catboost": (lambda: boosted("catboost"), True),
    "mlp": (mlp, False),
    "mlp, piecewise": (lambda: mlp(prepare=["encode", "piecewise:3"]), True),
    "ensemble": (lambda: rs.EnsembleRanker([linear("query-zscore"), mlp()], weights=[0.7, 0.3]), False),
}


def shapley_values(scores, a, b):
    """By all mixtures of two documents."""
    mixtures = list(itertools.product([False, True], repeat=len(a)))
    value = dict(zip(mixtures, scores(np.where(mixtures, a, b)), strict=True))
    found = np.zeros(len(a))
    for mixture, player in itertools.product(mixtures, range(len(a))):
        if not mixture[player]:
            others = sum(mixture)
            share = math.factorial(others) * math.factorial(len(a) - others - 1) / math.factorial(len(a))
            joined = (*mixture[:player], True, *mixture[player + 1 :])
            found[player] += share * (value[joined] - value[mixture])
    return found


@pytest.mark.parametrize("case", RANKERS)
@pytest.mark.filterwarnings("ignore")
def test_contributions_are_shapley_values_or_sum_to_the_difference(case):
    make, missing = RANKERS[case]
    for library in ("lightgbm", "xgboost", "catboost"):
        if case.startswith(library):
            pytest.importorskip(library)
    X, y, qid = draw(missing)
    ranker = make().fit(X, y, qid)
    scores = ranker.predict(X, qid)
    size = np.ptp(scores)
    for (a, b), why in zip(pairs := [(3, 7), (25, 31)], ranker.explain(X, *zip(*pairs, strict=True), qid), strict=True):
        assert why.documents == (a, b)
        assert why.contributions.sum() == pytest.approx(scores[a] - scores[b], abs=1e-6 * size)
        assert why.scores[0] - why.scores[1] == pytest.approx(scores[a] - scores[b], abs=1e-6 * size)
        assert abs(why.error) <= 1e-6 * size
        assert (np.diff(np.abs(why.contributions)) <= 0).all()
        if case.startswith(("mlp", "ensemble")):
            continue
        expected = shapley_values(ranker.predict, X[a], X[b])
        order = [int(name.removeprefix("feature_")) - 1 for name in why.names]
        assert why.contributions == pytest.approx(expected[order], abs=1e-6 * size)


def test_integrated_gradients_of_a_network_are_the_integral():
    """Where only one unit is active on a part of the line, the integral is known."""
    scorer = rs.models.MLPScorer(2, hidden=1)
    layers = [each for each in scorer.modules() if isinstance(each, torch.nn.Linear)]
    with torch.no_grad():
        layers[0].weight[:], layers[0].bias[:] = torch.tensor([[1.0, 2.0]]), -1.0
        layers[1].weight[:], layers[1].bias[:] = 3.0, 5.0
    (why,) = explain_scorer(scorer, np.array([[1.0, 1.0], [0.0, 0.0]]), [(0, 1)])
    assert why.names == ("feature_2", "feature_1")
    assert why.contributions == pytest.approx([4.0, 2.0], abs=1e-6)  # 3 times 1 or 2, on the last two thirds
    assert why.scores == (11.0, 5.0)


@pytest.mark.filterwarnings("ignore")
def test_categories_and_missing_cells_are_values_of_their_column():
    pytest.importorskip("lightgbm")
    rng = np.random.default_rng(1)
    frame = pd.DataFrame(
        {"qid": np.repeat([f"q{at}" for at in range(20)], 20), "docid": [f"d{at}" for at in range(400)]}
    )
    frame["brand"] = rng.choice(["acme", "bee", None], 400)
    frame["price"] = np.where(rng.random(400) < 0.2, np.nan, rng.exponential(9, 400))
    frame["same"] = 1.5
    frame["label"] = (frame["brand"] == "bee") + (frame["price"].fillna(0) > 9).astype(int)
    bee, other = np.flatnonzero(frame["brand"] == "bee")[0], 3
    frame.loc[other, ["brand", "price", "qid"]] = ["acme", np.nan, frame["qid"][bee]]
    for ranker in (boosted(), boosted(prepare=["encode", "standardize"]), linear("encode", "piecewise:4")):
        ranker.fit(frame)
        why = ranker.explain(frame, f"d{bee}", "d3", docid="docid")
        values = dict(zip(why.names, why.values, strict=True))
        assert why.documents == (f"d{bee}", "d3")
        assert values["brand"] == ("bee", "acme")
        assert values["price"][1] is None
        contributions = dict(zip(why.names, why.contributions, strict=True))
        assert why.names[-1] == "same"
        assert contributions["brand"] > 0 == contributions["same"]
        scores = ranker.predict(frame, frame["qid"])
        assert why.contributions.sum() == pytest.approx(scores[bee] - scores[other], abs=1e-6)
        text = str(why).splitlines()
        assert text[0].split() == ["feature", f"d{bee}", "d3", "contribution"]
        assert len(text) == 4, "features that contribute nothing are left out"
        assert text[-1].startswith("score")


class Rounded(torch.nn.Module):
    def forward(self, scores):
        return scores.detach().round()


def test_what_cannot_be_explained_is_refused():
    X, y, qid = draw()
    ranker = linear("standardize").fit(X, y, qid)
    for a, b, options, said in (
        (0, 1000, {}, "b must be a row from 0 to 599, or a name of docid= as text, got 1000"),
        (-1, 1, {}, "a must be a row from 0 to 599, .* got -1"),
        (1.5, 1, {}, "a must be .* got 1.5"),
        ("d1", 1, {}, "a must be .* got 'd1'"),
        ("0", 1, {"docid": np.zeros(600, int)}, "a must be .* got '0' 600 times"),
        (0, 1, {"docid": ["d"]}, "docid must have one name per document"),
        (0, 599, {"qid": qid}, "documents of one list, got rows 0 and 599 of two lists"),
    ):
        with pytest.raises(ValueError, match=said):
            ranker.explain(X, a, b, **options)
    X[3, 1] = np.nan
    with pytest.raises(ValueError, match="X has missing values"):
        ranker.explain(X, 3, 1)
    with pytest.raises(ValueError, match="are not finite"):
        explain_scorer(ranker.to_scorer(), X, [(3, 1)])
    with pytest.raises(ValueError, match="a ContextScorer compares the documents of a list"):
        explain_scorer(rs.ContextScorer(D), X, [(0, 1)])
    scorer = torch.nn.Sequential(torch.nn.Linear(D, 1, bias=False), torch.nn.Flatten(0))
    (why,) = explain_scorer(scorer, X, [(0, 1)])  # a scorer of one's own
    assert why.contributions.sum() == pytest.approx(why.scores[0] - why.scores[1], abs=1e-6)
    scorer.append(Rounded())
    with pytest.raises(ValueError, match="a Sequential is not differentiable"):
        explain_scorer(scorer, X, [(0, 1)])
    with pytest.raises(ValueError, match="pairs must have two rows from 0 to 599"):
        explain_scorer(LinearScorer(D), X, [(0, 600)])
    with pytest.raises(ValueError, match="feature_names must be 4 different names"):
        explain_scorer(LinearScorer(D), X, [(0, 1)], feature_names=["a"])


def test_the_command_prints_and_draws(tmp_path, capsys):
    scorer = LinearScorer(2)
    scorer.linear.weight.data = torch.tensor([[2.0, -1.0]])
    scorer.feature_names = ("bm25", "age")
    rs.save_scorer(scorer, tmp_path / "scorer.pt")
    (tmp_path / "a.csv").write_text("qid,docid,age,bm25\nq1,x,3,1\nq1,y,0,0\nq2,x,0,0\nq2,z,1,1\nq2,w,0,9\n")
    given = ["explain", str(tmp_path / "scorer.pt"), str(tmp_path / "a.csv")]
    assert cli.main([*given, "--query", "q2", "--documents", "w", "z", "--plot", str(tmp_path / "a.png")]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert rows[1:4] == [["bm25", "9", "1", "+16"], ["age", "0", "1", "+1"], ["score", "18", "1", "+17"]]
    assert (tmp_path / "a.png").stat().st_size > 1000
    assert cli.main([*given, "--query", "q1"]) == 0
    assert capsys.readouterr().out.split()[1:3] == ["y", "x"], "the two best ones, of scores 0 and 2 - 3"
    for more, said in (
        ([], "--query must name one of the 2 lists, such as 'q1'"),
        (["--query", "q3"], "--query must name one of 2, got 'q3'"),
        (["--query", "q1", "--documents", "x", "w"], "--documents must name one of 2, got 'w'"),
        (["--query", "q1", "--plot", "a.doc"], "--plot must end with .pdf, .png, .svg"),
    ):
        assert cli.main([*given, *more]) == 1
        assert said in capsys.readouterr().err
