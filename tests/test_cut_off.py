"""The guarantees of `CutOff` by simulation, its threshold by a slow search, and what it refuses."""

import json
import pickle

import numpy as np
import pytest
import torch
from scipy.stats import binom

import rankstruct as rs
from rankstruct.cut_off import hoeffding_bentkus


def drawn(seed, lists=60, size=12, ties=False):
    rng = np.random.default_rng(seed)
    labels = (rng.random((lists, size)) < 0.25) * rng.integers(1, 4, (lists, size))
    scores = labels + 1.5 * rng.normal(size=labels.shape)
    return (scores.round() if ties else scores), labels


def statistic(scores, rule):
    if rule == "softmax":
        deviation = scores.std()
        powers = np.exp((scores - scores.max()) / (deviation if deviation > 0 else 1.0))
        return powers / powers.sum()
    return scores if rule == "score" else -np.array([(scores >= each).sum() for each in scores], float)


def share(scores, labels, shown, target):
    if target == "recall":
        return (labels[shown] > 0).sum() / (labels > 0).sum()
    gains, discounts = 2.0**labels - 1, np.empty(len(labels))
    for each in np.unique(scores):
        first, last = (scores > each).sum(), (scores >= each).sum()
        discounts[scores == each] = np.mean([1 / np.log2(2 + at) for at in range(first, last)])
    return (gains * discounts)[shown].sum() / (gains * discounts).sum()


@pytest.mark.parametrize("target", ["recall", "ndcg"])
@pytest.mark.parametrize("rule", ["softmax", "score", "rank"])
@pytest.mark.parametrize("ties", [False, True])
def test_the_threshold_is_the_highest_that_the_bound_allows(target, rule, ties):
    scores, labels = drawn(1, lists=14, size=6, ties=ties)
    cut_off = rs.CutOff(**{target: 0.85}, rule=rule).fit(scores, labels)
    counted = [at for at in range(len(labels)) if labels[at].any()]
    values = [statistic(each, rule) for each in scores]

    def risk(threshold):
        return np.mean([1 - share(scores[at], labels[at], values[at] >= threshold, target) for at in counted])

    n = len(counted)
    allowed = [t for t in np.unique(np.concatenate(values)) if (n * risk(t) + 1) / (n + 1) <= 0.15 + 1e-12]
    assert (cut_off.num_lists_, cut_off.num_empty_) == (n, len(labels) - n)
    threshold = cut_off.threshold_ - 1e-9 * abs(cut_off.threshold_)  # which is a value, within rounding
    assert risk(threshold) == pytest.approx(risk(max(allowed)), abs=1e-9)
    assert cut_off.held_out_ == pytest.approx(1 - risk(threshold), abs=1e-9)
    shown = cut_off.predict(scores).numpy()
    assert (shown == np.array([each >= threshold for each in values])).all()


def test_recall_holds_in_expectation_and_with_probability():
    scores, labels = drawn(2, lists=1000)
    rng = np.random.default_rng(0)
    found = {None: [], 0.8: []}
    for _ in range(60):
        held = rng.choice(1000, 60, replace=False)
        for confidence, recalls in found.items():
            shown = rs.CutOff(recall=0.8, confidence=confidence).fit(scores[held], labels[held]).predict(scores).numpy()
            good, some = labels > 0, (labels > 0).any(1)
            recalls.append(((shown & good).sum(1)[some] / good.sum(1)[some]).mean())
    mean, error = np.mean(found[None]), np.std(found[None]) / np.sqrt(60)
    assert 0.8 - 2 * error <= mean <= 0.83
    assert np.mean(np.array(found[0.8]) >= 0.8) >= 0.8


def test_precision_holds_with_probability():
    scores, labels = drawn(3, lists=1500)
    rng, good = np.random.default_rng(0), labels > 0
    for rule in ("rank", "softmax"):
        held = []
        for _ in range(20):
            some = rng.choice(1500, 300, replace=False)
            cut_off = rs.CutOff(precision=0.4, confidence=0.8, rule=rule).fit(scores[some], labels[some])
            shown = cut_off.predict(scores).numpy()
            many = shown.sum(1)
            held.append(np.where(many > 0, (shown & good).sum(1) / np.maximum(many, 1), 1.0).mean())
        assert np.mean(np.array(held) >= 0.4) >= 0.8
        assert np.mean(held) < 0.6  # as many documents as that allows


def test_precision_of_nothing_is_told():
    scores, labels = drawn(9, lists=300)
    with pytest.warns(UserWarning, match="of the held-out lists show no document"):
        rs.CutOff(precision=0.95, confidence=0.9).fit(np.random.default_rng(0).normal(size=scores.shape), labels)
    plain = rs.CutOff(precision=0.4, confidence=0.8, rule="rank")
    alone = plain.fit(scores.ravel(), labels.ravel(), group=[12] * 300).threshold_
    empty = plain.fit(scores.ravel(), labels.ravel(), group=[12] * 300 + [0] * 900)
    assert (empty.threshold_, empty.num_lists_, empty.num_empty_) == (alone, 300, 900)


def test_every_layout_gives_the_same():
    scores, labels = drawn(4, lists=30, size=6)
    where = np.random.default_rng(0).random(scores.shape) < 0.8
    where[:, 0] = True
    padded = rs.CutOff(recall=0.7).fit(scores, labels, where=where)
    shown = padded.predict(scores, where=where)
    assert not shown[~torch.from_numpy(where)].any()
    flat, sizes = (scores[where], labels[where]), where.sum(1)
    by_size = rs.CutOff(recall=0.7).fit(*flat, group=sizes)
    assert by_size.threshold_ == pytest.approx(padded.threshold_)
    assert (padded.predict(flat[0], group=sizes).numpy() == shown.numpy()[where]).all()
    order = np.random.default_rng(1).permutation(len(flat[0]))
    qid = np.repeat(np.arange(30), sizes)[order]
    mixed = rs.CutOff(recall=0.7).fit(flat[0][order], flat[1][order], qid=qid)
    assert mixed.threshold_ == pytest.approx(padded.threshold_)
    assert (padded.predict(flat[0][order], qid=qid).numpy() == shown.numpy()[where][order]).all()
    again = pickle.loads(pickle.dumps(padded))
    assert torch.equal(again.predict(torch.tensor(scores), where=torch.tensor(where)), shown)


def test_documents_that_were_not_retrieved_count():
    scores, labels = drawn(5)
    every = (labels > 0).sum(1)
    with pytest.raises(ValueError, match=r"complete lists have recall .* does not guarantee 0\.8"):
        rs.CutOff(recall=0.8).fit(scores, labels, num_relevant=2 * every)
    some = rs.CutOff(recall=0.4).fit(scores, labels, num_relevant=2 * every)
    assert some.threshold_ == pytest.approx(rs.CutOff(recall=0.8).fit(scores, labels).threshold_)


def test_a_saved_cut_off_shows_the_same():
    scores, labels = drawn(8)
    fitted = rs.CutOff(precision=0.4, confidence=0.8, rule="rank", min_relevant=1).fit(scores, labels)
    for same in (rs.CutOff(**json.loads(json.dumps(fitted.options))), eval(repr(fitted), {"CutOff": rs.CutOff})):
        assert (same.options, same.threshold_) == (fitted.options, fitted.threshold_)
        assert torch.equal(same.predict(scores), fitted.predict(scores))
    assert "threshold" not in rs.CutOff(recall=0.9).options


def test_extreme_scores_are_shown_like_others():
    scores, labels = drawn(6)
    plain = rs.CutOff(recall=0.8).fit(scores, labels)
    for factor in (1e300, 1e-200):
        assert torch.equal(plain.predict(scores * factor), plain.predict(scores))
    assert plain.predict(np.zeros((2, 3))).all()  # 1/3 each


def test_p_values_are_valid():
    n, allowed = 40, 0.2
    losses = np.arange(n + 1)
    for level in (0.05, 0.2):
        rejected = hoeffding_bentkus(losses / n, n, allowed) <= level
        assert binom.pmf(losses, n, allowed)[rejected].sum() <= level


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "give exactly one target"),
        ({"recall": 0.9, "precision": 0.5, "confidence": 0.9}, "give exactly one target"),
        ({"recall": 1}, "recall must be a finite number above 0 and below 1, or None, got 1"),
        ({"recall": 90}, "recall must be a finite number above 0 and below 1, or None, got 90"),
        ({"recall": 0.9, "confidence": True}, "confidence must be a finite number above 0 and below 1"),
        ({"recall": 0.9, "rule": "softmx"}, "rule must be one of .*did you mean softmax"),
        ({"recall": 0.9, "min_relevant": float("nan")}, "min_relevant must be a finite number, or None, got nan"),
        ({"recall": 0.9, "threshold": float("inf")}, "threshold must be a finite number, or None, got inf"),
        ({"ndcg": 0.9, "min_relevant": 2}, "min_relevant is of recall and precision"),
        ({"precision": 0.5}, "precision is not monotone.*confidence="),
        ({"precision": 0.5, "confidence": 0.9, "rule": "score"}, "precision tests thresholds"),
    ],
)
def test_wrong_options_are_refused(options, said):
    with pytest.raises(ValueError, match=said):
        rs.CutOff(**options)


def test_lists_that_guarantee_nothing_are_refused():
    scores, labels = drawn(7, lists=8)
    labels[:, 0] = 1
    with pytest.raises(ValueError, match=r"8 held-out lists are too few for recall=0\.9: .* at least 9"):
        rs.CutOff(recall=0.9).fit(scores, labels)
    with pytest.raises(ValueError, match=r"8 held-out lists are too few for recall=0\.9: .* at least 22"):
        rs.CutOff(recall=0.9, confidence=0.9).fit(scores, labels)
    with pytest.raises(ValueError, match="needs lists with relevant documents, got none in 8 lists"):
        rs.CutOff(recall=0.9).fit(scores, np.zeros_like(labels))
    with pytest.raises(ValueError, match="the first documents have precision"):
        rs.CutOff(precision=0.9, confidence=0.9, rule="rank").fit(scores, labels)
    with pytest.raises(ValueError, match="not fitted"):
        rs.CutOff(recall=0.9).predict(scores)
    with pytest.raises(ValueError, match="num_relevant is of the target recall"):
        rs.CutOff(ndcg=0.5).fit(scores, labels, num_relevant=np.ones(8))
    with pytest.raises(ValueError, match="labels must be at least 0 for the target ndcg, got -1"):
        rs.CutOff(ndcg=0.5).fit(scores, labels - 1)
    with pytest.raises(
        ValueError, match="num_relevant must count the relevant documents in the list too, got 0 for list 0"
    ):
        rs.CutOff(recall=0.5).fit(scores, labels, num_relevant=np.zeros(8))
    with pytest.raises(ValueError, match="needs lists with relevant documents, got none in 5 lists"):
        rs.CutOff(recall=0.5).fit(np.zeros((5, 0)), np.zeros((5, 0)))
    fitted = rs.CutOff(recall=0.5).fit(scores, labels)
    before = dict(vars(fitted))
    with pytest.raises(ValueError, match="needs lists"):
        fitted.fit(scores, np.zeros_like(labels))
    assert vars(fitted) == before
    scores[2, 1] = np.nan
    with pytest.raises(ValueError, match="scores must be finite, got nan"):
        rs.CutOff(recall=0.5).fit(scores, labels)
