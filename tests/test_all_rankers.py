"""What holds of every ranker: a fit that fails changes nothing, names are kept, what is not asked for is refused."""

import copy
import pickle

import numpy as np
import pandas as pd
import pytest
import sklearn
import torch
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, GroupKFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.validation import check_is_fitted

import rankstruct as rs
from rankstruct.estimators.base import Ranker

#: Quick settings of every ranker.
MAKE = {
    "linear": lambda: rs.LinearRanker(C=1.0),
    "linear, not convex": lambda: rs.LinearRanker("nDCG@3"),
    "kernel": lambda: rs.KernelRanker(C=1.0),
    "mlp": lambda: rs.MLPRanker(max_epochs=2, hidden=(4,), device="cpu"),
    "mlp, attention": lambda: rs.MLPRanker(max_epochs=2, hidden=(4,), device="cpu", context="attention", seeds=2),
    "boosted": lambda: rs.BoostedRanker(n_estimators=3, min_child_samples=2),
    "boosted, start": lambda: rs.BoostedRanker(n_estimators=3, min_child_samples=2, start=rs.LinearRanker()),
    "boosted, leaves": lambda: rs.BoostedRanker(
        n_estimators=3, min_child_samples=2, leaf_ranker=rs.LinearRanker(prepare=())
    ),
    "ensemble": lambda: rs.EnsembleRanker([rs.LinearRanker(), rs.LinearRanker("AP")]),
    "auto": lambda: rs.AutoRanker(time_budget=0, folds=2),
}
every_ranker = pytest.mark.parametrize("name", MAKE)


def ranker_of(name):
    if "boosted" in name:
        pytest.importorskip("lightgbm")
    return MAKE[name]()


def frame_of(seed=0, columns="abc", lists=8, size=6, grades=3):
    """A frame with its labels and lists, whose first column ranks; the scales of the columns depend on the seed."""
    rng = np.random.default_rng(seed)
    X = pd.DataFrame(rng.normal(size=(lists * size, len(columns))), columns=list(columns))
    y = np.clip(np.round(X.iloc[:, 0] + 0.3 * rng.normal(size=len(X)) + 0.5), 0, grades - 1)
    X = X * 10.0**seed + seed
    return X.assign(label=y, qid=np.repeat([f"q{at}" for at in range(lists)], size))


def valid_of(frame):
    return {"X_valid": frame}


def fit(ranker, seed, columns):
    return ranker.fit(frame_of(seed, columns), **valid_of(frame_of(seed + 10, columns)))


def state_of(ranker, frame):
    """What a user sees of a fitted ranker."""
    return {
        "scores": ranker.predict(frame).tolist(),
        "score": ranker.score(frame),
        "names": ranker.feature_names_in_.tolist(),
        "measure": str(ranker.measure_),
        "lists": (ranker.lists_, ranker.longest_list_),
    }


class FailedError(Exception):
    """Raised in the middle of a fit."""


def fail_at(monkeypatch, ranker, number, error):
    """Let the `number`-th attribute that a fit sets on the ranker fail; returns the names set so far."""
    seen = []

    def set_attribute(self, name, value):
        if self is ranker:
            seen.append(name)
            if len(seen) == number:
                raise error
        object.__setattr__(self, name, value)

    monkeypatch.setattr(Ranker, "__setattr__", set_attribute, raising=False)
    return seen


def test_every_public_ranker_is_tested():
    kinds = {type(make()) for make in MAKE.values()}
    assert {
        each for each in vars(rs.estimators).values() if isinstance(each, type) and issubclass(each, Ranker)
    } <= kinds
    assert {getattr(rs, each) for each in dir(rs) if each.endswith("Ranker")} == kinds


@pytest.mark.sampled(2)
@every_ranker
def test_a_fit_that_fails_anywhere_leaves_the_old_model_or_none(name, monkeypatch):
    old = frame_of(0, "abc")
    with monkeypatch.context() as patch:
        ranker = ranker_of(name)
        seen = fail_at(patch, ranker, -1, FailedError)
        fit(ranker, 1, "xyzw")
        steps = len(seen)
    assert steps > 4
    fitted = fit(ranker_of(name), 0, "abc")
    before = state_of(fitted, old)
    for number in sorted({1, 2, 4, steps // 2, steps - 1, steps}):
        error = KeyboardInterrupt if number % 2 else FailedError
        for ranker in (fitted, ranker_of(name)):
            with monkeypatch.context() as patch:
                fail_at(patch, ranker, number, error)
                with pytest.raises(error):
                    fit(ranker, 1, "xyzw")
        assert state_of(fitted, old) == before, f"failed at attribute {number} of {steps}"
        with pytest.raises(sklearn.exceptions.NotFittedError):
            check_is_fitted(ranker)
    assert fit(fitted, 1, "xyzw").feature_names_in_.tolist() == list("xyzw")


@pytest.mark.sampled(2)
@every_ranker
def test_wrong_data_leave_the_old_model_or_none(name):
    old, new = frame_of(0, "abc"), frame_of(1, "xyzw")
    fitted = fit(ranker_of(name), 0, "abc")
    before, new_valid = state_of(fitted, old), frame_of(2, "xyzw")
    for options in (
        {"X": new.assign(label=np.nan)},
        {"X": new.assign(label=-1)},
        {"X": new, "sample_weight": np.ones(7)},
        {"X": new, "item_weights": -np.ones(len(new))},
        {"X": new, "X_valid": new_valid.drop(columns="w")},
        {"X": new, "X_valid": new_valid.assign(label=np.nan)},
        {"X": new, "X_valid": new_valid.assign(x="word")},
        {"X": new, "X_valid": new_valid, "item_weights_valid": np.ones(7)},
    ):
        for ranker in (fitted, unfitted := ranker_of(name)):
            with pytest.raises(ValueError):
                ranker.fit(**options)
        assert state_of(fitted, old) == before, str(options)
        assert vars(unfitted).keys() == vars(ranker_of(name)).keys()


@pytest.mark.parametrize("kind", [rs.LinearRanker, rs.KernelRanker])
def test_a_fit_that_ctrl_c_ends_keeps_a_whole_new_model(kind):
    def press(record, w):
        raise KeyboardInterrupt

    new = frame_of(1, "xyzw")
    ranker = kind("AP", C=0.1).fit(frame_of(0, "abc"))
    solver = rs.solvers.Bundle(callback=press)
    with pytest.raises(KeyboardInterrupt, match=r"stopped at C = 0.1; coef_ has the best weights"):
        ranker.set_params(solver=solver).fit(new)
    assert ranker.feature_names_in_.tolist() == list("xyzw")
    assert np.isfinite(ranker.predict(new)).all()
    with pytest.raises(KeyboardInterrupt):  # but not that of an ensemble
        (both := rs.EnsembleRanker([ranker])).fit(new)
    with pytest.raises(sklearn.exceptions.NotFittedError):
        check_is_fitted(both)


@pytest.mark.parametrize("kind", [rs.LinearRanker, rs.KernelRanker])
def test_a_risk_leaves_a_ranker_unfitted(kind):
    frame = frame_of(1)
    ranker = kind("AP")
    ranker.risk(frame[["a", "b", "c"]], frame["label"], frame["qid"])
    with pytest.raises(ValueError, match="no list can be learned from"):
        ranker.risk(frame[["a", "b", "c"]], 0 * frame["label"], frame["qid"])
    assert not [name for name in vars(ranker) if name.endswith("_")]


def reordered(library, frame, names):
    """Columns of a frame in another order, in another library."""
    frame = frame[names]
    if library == "pandas":
        return frame
    polars = pytest.importorskip("polars").DataFrame({name: frame[name].to_numpy() for name in names})
    table = polars if library == "polars" else polars.to_arrow()
    return table.to_batches()[0] if library == "record batch" else table


@pytest.mark.sampled(4)
@pytest.mark.parametrize("library", ["pandas", "polars", "arrow", "record batch"])
@every_ranker
def test_columns_are_matched_by_name(name, library):
    frame = frame_of(1)
    ranker = ranker_of(name).fit(frame, **valid_of(frame_of(2)))
    expected, features = ranker.predict(frame), ["c", "a", "b"]
    for names in (features, [*features, "qid"], ["qid", "label", *features]):
        other = reordered(library, frame, names)
        lists = {} if "qid" in names else {"qid": frame["qid"]}
        np.testing.assert_array_equal(ranker.predict(other, **lists), expected)
    again = ranker_of(name).fit(frame, X_valid=reordered(library, frame_of(2), ["qid", *features, "label"]))
    np.testing.assert_array_equal(again.predict(frame), expected)
    for names, told in (
        (["c", "a"], "missing: 'b'"),
        (["label", "c"], "missing: 'a', 'b'"),
        (["a", "more", "b", "c"], "unknown: 'more'"),
        (["more", "b", "c"], "missing: 'a'; unknown: 'more'"),
    ):
        with pytest.raises(ValueError, match=f"^X must have the columns of training; {told}$"):
            ranker.predict(reordered(library, frame.assign(more=1.0), names))


@pytest.mark.parametrize("columns", [[0, 1, 2], [7, 5, 9], ["a", 1, 2.0], ["0", "1", "2"]], ids=str)
def test_numbers_as_names_are_matched_too(columns):
    frame = frame_of(1)
    X, y, qid = frame[["a", "b", "c"]].set_axis(columns, axis=1), frame["label"], frame["qid"]
    ranker = rs.LinearRanker().fit(X, y, qid)
    np.testing.assert_array_equal(ranker.predict(X[[columns[2], columns[0], columns[1]]]), ranker.predict(X))
    if columns == [0, 1, 2]:
        np.testing.assert_array_equal(ranker.predict(X.to_numpy()), ranker.predict(X))  # without a warning
    else:
        with pytest.raises(ValueError, match="must have the columns of training"):
            ranker.predict(X.set_axis(["x", "y", "z"], axis=1))


@pytest.mark.sampled(2)
@every_ranker
def test_data_of_files_have_labels_lists_and_groups(name):
    frame, valid = frame_of(1), frame_of(2)
    data, more = (rs.data.RankingData.from_arrays(f[["a", "b", "c"]], f["label"], f["qid"]) for f in (frame, valid))
    X, y, qid = data.features, data.labels, data.list_numbers
    ranker = ranker_of(name).fit(data, X_valid=more)
    same = ranker_of(name).fit(X, y, qid, X_valid=more.features, y_valid=more.labels, qid_valid=more.list_numbers)
    np.testing.assert_array_equal(ranker.predict(data), same.predict(X, qid))
    assert ranker.score(data) == same.score(X, y, qid)
    for call in (ranker.predict, ranker.score, ranker.fit):
        with pytest.raises(ValueError, match=r"^X is RankingData, which has lists: omit qid and group$"):
            call(data, **({"qid": qid} if call == ranker.predict else {"group": [6] * 8}))


def test_groups_of_data_are_those_of_its_measure():
    frame = frame_of(1)
    data = rs.data.RankingData.from_arrays(frame[["a", "b", "c"]], frame["label"], frame["qid"])
    hosts = np.arange(data.num_documents) % 4
    whole = rs.data.RankingData(data.features, data.labels, data.offsets, data.qids, diversity_groups=hosts)
    ranker = rs.LinearRanker("diverse_nDCG@3").fit(whole, X_valid=whole)
    given = {"diversity_groups": hosts}
    X, y, qid = data.features, data.labels, data.list_numbers
    valid = {"X_valid": X, "y_valid": y, "qid_valid": qid, "diversity_groups_valid": hosts}
    same = rs.LinearRanker("diverse_nDCG@3").fit(X, y, qid, **given, **valid)
    np.testing.assert_array_equal(ranker.coef_, same.coef_)
    assert ranker.score(whole) == same.score(X, y, qid, **given)
    plain = rs.LinearRanker("AP").fit(whole)
    np.testing.assert_array_equal(plain.coef_, rs.LinearRanker("AP").fit(data).coef_)


def kinds_of_data():
    frame = frame_of(1)
    polars, lists = pytest.importorskip("polars"), frame.assign(e=[[1.0, 2.0]] * len(frame))
    frames, parts = (
        polars.DataFrame(frame.to_dict("list")),
        rs.data.Splits(*[rs.data.RankingData.from_arrays([[1.0]], [1], [1])] * 3),
    )

    class DuckDBPyRelation:
        columns, fetchnumpy = list("abc"), None

    return {
        "pass X.collect()": frames.lazy(),
        "got a list of dicts: pass pandas.DataFrame(X)": frame.to_dict("records"),
        "got a dict: pass pandas.DataFrame(X)": frame.to_dict("list"),
        "got a DuckDBPyRelation: pass X.df()": DuckDBPyRelation(),
        "got a path: pass rankstruct.data.read_lists(X)": "train.txt",
        "got a Splits: pass one of its parts, such as X.train": parts,
        "column 'e' has large_list<item: double>": frames.with_columns(e=polars.Series([[1.0, 2.0]] * len(frame))),
        "column 'e' has struct<a: double, b: double>": frames.with_columns(e=polars.struct("a", "b")),
        "column 'e' has large_list<": frames.with_columns(e=polars.Series([[1.0, 2.0]] * len(frame))).to_arrow(),
        "column 'e' has struct<": frames.with_columns(e=polars.struct("a", "b")).to_arrow(),
        "column 'e' has list<": lists,
        "X must have shape [documents, d], got (48,)": frame["a"],
    }


@pytest.mark.sampled(2)
@pytest.mark.filterwarnings("ignore:Determining the data types of a LazyFrame")
@every_ranker
def test_what_is_no_table_is_refused_in_one_line_that_says_what_to_pass(name):
    ranker, data = ranker_of(name), frame_of(1)
    fitted = ranker_of(name).fit(data[["a", "b", "c"]], data["label"], data["qid"])
    for message, X in kinds_of_data().items():
        for call in (
            lambda X=X: ranker.fit(X, data["label"], data["qid"]),
            lambda X=X: fitted.fit(data, X_valid=X, y_valid=data["label"], qid_valid=data["qid"]),
            lambda X=X: fitted.predict(X, data["qid"]),
            lambda X=X: fitted.score(X, data["label"], data["qid"]),
        ):
            with pytest.raises((TypeError, ValueError)) as failure:
                call()
            assert message in str(failure.value).replace("X_valid", "X") or "columns of training" in str(failure.value)
            assert "\n" not in str(failure.value)


@pytest.mark.sampled(2)
@every_ranker
def test_labels_lists_and_weights_of_other_shapes(name):
    frame = frame_of(1)
    X, y, qid = frame[["a", "b", "c"]].to_numpy(), frame["label"].to_numpy(), frame["qid"].to_numpy()
    expected = ranker_of(name).fit(X, y, qid).predict(X, qid)
    with pytest.warns(sklearn.exceptions.DataConversionWarning, match="column-vector y"):
        column = ranker_of(name).fit(X, y[:, None], qid)
    np.testing.assert_array_equal(column.predict(X, qid), expected)
    with pytest.warns(sklearn.exceptions.DataConversionWarning, match="column-vector y"):
        assert column.score(X, y[:, None], qid) == column.score(X, y, qid)
    missing, words = np.where(np.arange(len(y)) == 13, np.nan, y), y.astype(str)
    for options, message in (
        ({"y": missing}, "Input y contains NaN: labels must be finite numbers; that of document 13 is not"),
        ({"y": words}, "labels must be numbers, graded relevance from 0; got '[012]"),
        ({"qid": qid[:, None]}, r"qid must have one entry per document.*pass qid.ravel\(\)"),
        ({"qid": [6] * 8}, "pass sizes of lists as group="),
        ({"qid": None, "group": [6] * 7}, "group must be the sizes of consecutive lists, .* add up to 48"),
        ({"sample_weight": np.arange(48)}, "one weight per list, shape \\(8,\\), or one per document, equal within"),
        ({"sample_weight": np.ones(7)}, "one weight per list, shape \\(8,\\)"),
    ):
        with pytest.raises(ValueError, match=message):
            ranker_of(name).fit(**{"X": X, "y": y, "qid": qid} | options)
        if "y" in options:
            with pytest.raises(ValueError, match=message.replace("y ", "y_valid ", 1)):
                ranker_of(name).fit(X, y, qid, X_valid=X, y_valid=options["y"], qid_valid=qid)
        with pytest.raises(ValueError, match=message):
            column.score(**{"X": X, "y": y, "qid": qid} | options)


@pytest.mark.sampled(2)
@every_ranker
def test_rows_of_a_list_need_not_be_together(name):
    frame = frame_of(1)
    order = np.argsort(np.tile(np.arange(6), 8), kind="stable")  # the first of each list, then the second ones
    ranker, apart = ranker_of(name).fit(frame), frame.iloc[order]
    np.testing.assert_allclose(ranker.predict(apart), ranker.predict(frame)[order], atol=1e-12)
    assert ranker.score(apart) == pytest.approx(ranker.score(frame), abs=1e-12)
    again = ranker_of(name).fit(apart)
    assert (again.lists_, again.longest_list_) == (8, 6)


@every_ranker
def test_the_measure_sees_the_highest_label_of_training(name):
    """Also if it is not used in training, so that its warnings are given."""

    def gain(labels):
        if labels.numel() and labels.max() == 7:
            raise FailedError
        return labels

    ranker, frame = ranker_of(name), frame_of(1)
    off = {"validation_share": 0} if "validation_share" in ranker.get_params() else {}
    loss = {"loss": rs.GradedLoss("AUC")} if "loss" in ranker.get_params(deep=False) else {}
    ranker.set_params(measure=rs.nDCG(10, gain=gain), **off, **loss)
    ranker.fit(frame)
    with pytest.raises(FailedError):
        ranker.fit(frame.assign(label=frame["label"].where(frame.index != 13, 7)))


def test_labels_and_lists_in_the_wrong_order_are_announced():
    frame = frame_of(1)
    X, y, qid = frame[["a", "b", "c"]], frame["label"], np.repeat(np.arange(8), 6)
    with pytest.warns(UserWarning, match=r"8 labels, each in contiguous rows.* are they swapped\? .*fit\(X, y, qid\)"):
        rs.LinearRanker().fit(X, qid, y)
    with pytest.raises(ValueError, match=r"X must have shape \[documents, d\], got \(48,\)"):
        rs.LinearRanker().fit(y, X, qid)
    with pytest.raises(
        TypeError,
        match=r"^only X, y and qid may be given by position, and 4 arguments were; pass the others by name, group=",
    ):
        rs.LinearRanker().fit(X, y, qid, np.ones(8))


@pytest.mark.parametrize("kind", ["columns", "names", "arrays", "sorted by label"])
def test_score_says_that_labels_and_lists_are_swapped(kind):
    frame = frame_of(1)
    X, y, qid = frame[["a", "b", "c"]], frame["label"], frame["qid"]
    ranker = rs.LinearRanker().fit(frame)
    if kind == "arrays":
        with pytest.warns(UserWarning, match=r"8 labels, each in contiguous rows.* The order is score\(X, y, qid\)"):
            ranker.score(X, np.repeat(np.arange(8), 6), y.to_numpy())
    elif kind == "sorted by label":  # of which nothing is said
        by_label = frame.sort_values("label")
        assert ranker.score(by_label[["a", "b", "c"]], by_label["label"], by_label["qid"]) == pytest.approx(
            ranker.score(frame)
        )
    else:
        given = (frame, "qid", "label") if kind == "columns" else (X, qid, y)
        for call in (ranker.fit, ranker.score):
            with pytest.raises(
                ValueError, match=r"^y is the column 'qid' and qid the column 'label': they are swapped"
            ):
                call(*given)
        with pytest.raises(ValueError, match="they are swapped"):
            ranker.fit(frame, X_valid=given[0], y_valid=given[1], qid_valid=given[2])


@pytest.mark.sampled(2)
@every_ranker
@pytest.mark.parametrize("library", ["pandas", "arrow"])
def test_repeated_names_of_columns_are_refused_everywhere(name, library):
    pyarrow = pytest.importorskip("pyarrow")
    frame, ranker = frame_of(1), ranker_of(name)
    twice = pd.concat([frame, frame[["b"]]], axis=1)
    if library == "arrow":
        columns = [pyarrow.array(twice.iloc[:, at]) for at in range(twice.shape[1])]
        twice = pyarrow.Table.from_arrays(columns, names=list(twice.columns))
    message = r"^[^\n]* unique [^\n]* 'b' is repeated[^\n]*$"  # one line, the same everywhere
    fitted = fit(ranker_of(name), 1, "abc")
    for call in (ranker.fit, fitted.predict, fitted.score, lambda X: ranker.fit(frame, X_valid=X)):
        with pytest.raises(ValueError, match=message):
            call(twice)


#: Labels of validation lists for which AP(min_relevant=2) is the same in every ranking.
SAME = {"irrelevant": [0] * 6, "relevant": [2] * 6, "below min_relevant": [0, 1, 0, 1, 0, 0]}


def same_valid(eighths, kind):
    """Validation lists of which some have these labels."""
    return frame_of(11).assign(label=SAME[kind] * eighths + [2, 0, 1, 0, 2, 0] * (8 - eighths))


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("name", "kind"), [*((name, "irrelevant") for name in MAKE), *(("linear", kind) for kind in SAME)]
)
def test_validation_lists_that_tell_nothing_are_refused_or_warned_of(name, kind, recwarn):
    ranker = ranker_of(name).set_params(measure="AP(min_relevant=2)" if name == "linear" else "AP")
    said = r"AP.* is the same for every ranking"
    with pytest.raises(ValueError, match=rf"^y_valid: in each of the 8 validation lists {said}"):
        ranker.fit(frame_of(1), X_valid=same_valid(8, kind))
    with pytest.warns(UserWarning, match=rf"^in 6 of 8 validation lists {said}"):
        ranker.fit(frame_of(1), X_valid=same_valid(6, kind))
    recwarn.clear()
    ranker.fit(frame_of(1), X_valid=same_valid(2, kind))  # a few are usual, and change no choice
    assert not [each for each in recwarn if "validation lists" in str(each.message)]


def test_held_out_lists_that_tell_nothing_are_refused():
    frame = frame_of(1, lists=20)
    frame.loc[~frame["qid"].isin(["q2", "q3"]), "label"] = 0  # which are not held out
    ranker = ranker_of("mlp").set_params(validation_share=0.1, measure="AP", random_state=1)
    with pytest.raises(ValueError, match=r"^validation_share=0.1: in each of the 2 validation lists AP is the same"):
        ranker.fit(frame)


@pytest.mark.sampled(2)
@every_ranker
def test_files_and_copies_have_the_same_scores_and_names(name, tmp_path):
    frame = frame_of(1)
    ranker = ranker_of(name).fit(frame, **valid_of(frame_of(2)))
    before, files = state_of(ranker, frame), [pickle.loads(pickle.dumps(ranker)), copy.deepcopy(ranker)]
    if (skops := pytest.importorskip("skops.io")) is not None:
        skops.dump(ranker, tmp_path / "ranker.skops")
        unknown = skops.get_untrusted_types(file=tmp_path / "ranker.skops")
        files.append(skops.load(tmp_path / "ranker.skops", trusted=unknown))
    for again in files:
        assert state_of(again, frame) == before
        assert again.predict(frame[["c", "b", "a"]], frame["qid"]).tolist() == before["scores"]
        assert str(again.get_params(deep=False)) == str(ranker.get_params(deep=False))
    fresh = clone(ranker)
    assert not [each for each in vars(fresh) if each.endswith("_")]
    assert (
        state_of(fresh.set_params(**ranker.get_params(deep=False)).fit(frame, **valid_of(frame_of(2))), frame) == before
    )


def test_the_quick_start_of_lightgbm():
    pytest.importorskip("lightgbm")
    frame, valid = frame_of(1), frame_of(2)
    (X, y), (X_valid, y_valid) = (
        (each[["a", "b", "c"]].to_numpy(), each["label"].to_numpy()) for each in (frame, valid)
    )
    sizes = [6] * 8
    ranker = rs.BoostedRanker(
        "nDCG@5", n_estimators=20, learning_rate=0.1, num_leaves=7, min_child_samples=2, patience=5
    )
    with pytest.raises(
        TypeError, match=r"^there is no eval_set=; pass validation lists as X_valid=, y_valid= and qid_valid="
    ):
        ranker.fit(X, y, group=sizes, eval_set=[(X_valid, y_valid)], eval_group=[sizes])
    ranker.fit(X, y, group=sizes, X_valid=X_valid, y_valid=y_valid, qid_valid=np.repeat(np.arange(len(sizes)), sizes))
    assert ranker.predict(X_valid).shape == (48,)
    assert ranker.feature_importances_.shape == (3,)
    assert 1 <= ranker.best_iterations_[0] <= ranker.models_[0].num_trees() <= len(ranker.history_[0]) <= 20
    assert "tree" in ranker.models_[0].model_to_string()
    frame_too = rs.BoostedRanker(**ranker.get_params()).fit(frame, X_valid=valid)
    np.testing.assert_array_equal(frame_too.predict(valid), ranker.predict(X_valid))


def test_the_quick_start_of_xgboost():
    pytest.importorskip("xgboost")
    frame = frame_of(1)
    X, y, qid = frame[["a", "b", "c"]].to_numpy(), frame["label"].to_numpy(), frame["qid"]
    options = {"library": "xgboost", "n_estimators": 5, "min_child_samples": 1, "learning_rate": 0.1}
    valid = {"X_valid": X, "y_valid": y, "qid_valid": qid}
    ranker = rs.BoostedRanker(**options).fit(X, y, qid=qid, **valid, sample_weight=np.ones(8))
    table = frame[["a", "b", "c", "qid"]]
    same = rs.BoostedRanker(**options).fit(table, y, X_valid=table, y_valid=y)
    for unknown in ({"eval_set": [(X, y)]}, {"eval_qid": [qid]}):
        with pytest.raises(TypeError, match=r"^there is no eval_.*=; pass validation lists as X_valid="):
            ranker.fit(X, y, qid=qid, **unknown)
    np.testing.assert_array_equal(same.predict(table), ranker.predict(X))
    assert same.score(table, y) == ranker.score(X, y, qid) > 0.7


def test_the_quick_start_of_scikit_learn():
    frame = frame_of(1, lists=12)
    X, y, qid = frame[["a", "b", "c"]], frame["label"], frame["qid"]
    pipeline = make_pipeline(StandardScaler(), rs.LinearRanker(C=1.0)).set_output(transform="pandas")
    pipeline.fit(X, y, linearranker__qid=qid)
    assert pipeline[-1].feature_names_in_.tolist() == ["a", "b", "c"]
    with sklearn.config_context(enable_metadata_routing=True):
        given = {"qid": qid, "groups": qid}
        values = cross_val_score(rs.LinearRanker(), X, y, cv=GroupKFold(3), params=given)
        search = GridSearchCV(pipeline, {"linearranker__C": [0.1, 1.0]}, cv=GroupKFold(3)).fit(X, y, **given)
        assert search.score(X, y, qid=qid) > 0.7
    assert (values > 0.7).all()
    with pytest.warns(UserWarning, match="qid is missing, so all 96 documents are one list.*enable_metadata_routing"):
        cross_val_score(
            rs.LinearRanker(),
            pd.concat([X, X]),
            pd.concat([y, y]),
            groups=[0] * 96 + [1] * 48,
            cv=[([*range(96)], [*range(96, 144)])],
        )


@pytest.mark.parametrize(
    ("kind", "option", "way_out"),
    [
        ("LinearRanker", "alpha", "pass C="),
        ("LinearRanker", "max_iter", "pass max_iterations="),
        ("LinearRanker", "tol", "pass tolerance="),
        ("LinearRanker", "c", r"did you mean C\?"),
        ("LinearRanker", "penalty", "the arguments are measure, C, "),
        ("MLPRanker", "epochs", "pass max_epochs="),
        ("MLPRanker", "hidden_layer_sizes", "pass hidden="),
        ("MLPRanker", "batch_size", "pass lists_per_batch="),
        ("BoostedRanker", "num_iterations", "pass n_estimators="),
        ("BoostedRanker", "iterations", "pass n_estimators="),
        ("BoostedRanker", "seed", "pass random_state="),
        ("BoostedRanker", "reg_lambda", "parameters of the library that trains go into options="),
        ("BoostedRanker", "tree_method", "parameters of the library that trains go into options="),
        ("BoostedRanker", "learning_rat", r"did you mean learning_rate\?"),
        ("AutoRanker", "time_limit", "pass time_budget="),
        ("AutoRanker", "cv", "pass folds="),
        ("EnsembleRanker", "estimators", "pass rankers="),
        ("KernelRanker", "seed", "pass random_state="),
    ],
)
def test_an_unknown_option_has_a_hint(kind, option, way_out):
    with pytest.raises(TypeError, match=f"^there is no {option}=; {way_out}"):
        getattr(rs, kind)(**{option: 1})


@every_ranker
def test_an_unknown_argument_or_attribute_has_a_hint(name):
    ranker, frame = ranker_of(name), frame_of(1)
    fitted = ranker_of(name).fit(frame)
    for call, argument, way_out in (
        (ranker.fit, "callbacks", "for early stopping use patience="),
        (ranker.fit, "init_score", "pass a ranker to begin with"),
        (ranker.fit, "group_id", "pass qid=, one id per document"),
        (ranker.fit, "sample_weights", r"did you mean sample_weight\?"),
        (ranker.fit, "nonsense", "the arguments are X, y, qid, group, "),
        (fitted.predict, "num_iteration", "the best number of trees is used"),
        (fitted.predict, "nonsense", "the arguments are X, qid, group"),
        (fitted.score, "groups", "hosts or topics are diversity_groups="),
    ):
        with pytest.raises(TypeError, match=f"^there is no {argument}=; {way_out}"):
            call(frame, **{argument: 1})
    for attribute, way_out in (
        ("booster_", "models_ has the boosters"),
        ("best_iteration_", "best_iterations_ has that of each model"),
        ("save_model", "use pickle, or rankstruct.save_scorer"),
        ("predict_proba", r"predict\(X, qid\) returns the scores"),
    ):
        assert not hasattr(fitted, attribute)
        with pytest.raises(AttributeError, match=f"has no attribute '{attribute}'; {way_out}"):
            getattr(fitted, attribute)
    with pytest.raises(AttributeError, match=r"has no attribute 'nonsense'$"):
        fitted.nonsense  # noqa: B018


REAL = {
    "linear": lambda: rs.LinearRanker(),
    "linear, graded AUC": lambda: rs.LinearRanker(loss="GradedLoss('AUC')"),
    "mlp": lambda: rs.MLPRanker(max_epochs=15, hidden=(8,), device="cpu"),
    "boosted": lambda: rs.BoostedRanker(n_estimators=20, n_jobs=1),
    "auto": lambda: rs.AutoRanker(time_budget=0),
}


@pytest.mark.parametrize("name", REAL)
def test_real_valued_labels_between_0_and_1_are_learned(name):
    """No whole number but 0 is below any of them, so a sum over whole grades would be 0 for every ranking."""
    if name == "boosted":
        pytest.importorskip("lightgbm")
    rng = np.random.default_rng(0)
    X, qid = rng.normal(size=(600, 3)).astype(np.float32), np.repeat(np.arange(60), 10)
    y = 1 / (1 + np.exp(-X[:, 0] - 0.3 * rng.normal(size=600)))
    ranker = REAL[name]().fit(X, y, qid)
    assert ranker.score(X, y, qid) > 0.9  # 0.72 for a ranking at random
    assert ranker.thresholds_ == pytest.approx(np.quantile(np.unique(y)[1:], np.linspace(0, 1, 8)))


def test_thresholds_of_whole_grades_or_given_ones_are_left_alone():
    frame = frame_of(grades=4)
    ranker = rs.LinearRanker(loss="GradedLoss('AUC')").fit(frame)
    assert ranker.thresholds_ is None
    assert ranker.ranking_loss().grades is None
    halves = frame.assign(label=np.arange(len(frame)) % 4 / 2)
    own = rs.LinearRanker(loss="GradedLoss('AUC', grades=[1.0])").fit(halves)
    assert own.thresholds_ == [0.5, 1.0, 1.5]
    assert own.ranking_loss().grades == [1.0]
    combined = rs.CombinedLoss([rs.GradedLoss("AP"), rs.RankSVMLoss()])
    assert rs.MLPRanker(max_epochs=1, loss=combined).fit(halves).ranking_loss().losses[0].grades == [0.5, 1.0, 1.5]
    assert combined.losses[0].grades is None  # the caller's


def test_a_linear_ranker_without_measure_minimises_the_hinge_of_ap_at_every_grade():
    graded, binary = frame_of(grades=3), frame_of(grades=2)
    loss = rs.LinearRanker().fit(graded).ranking_loss()
    assert repr(loss) == repr(rs.GradedLoss("AP"))
    assert repr(rs.LinearRanker().ranking_loss(graded["label"].to_numpy())) == repr(loss)
    assert repr(rs.LinearRanker().fit(binary).ranking_loss()) == repr(rs.StructuredHingeLoss("AP"))
    named = rs.LinearRanker("nDCG@10").fit(graded)
    assert repr(named.ranking_loss()) == repr(rs.StructuredHingeLoss("nDCG@10"))
    bound = rs.LinearRanker(reference="predicted").fit(graded).ranking_loss()
    assert (bound.measure.name, bound.reference) == ("nDCG@10", "predicted")
    assert repr(rs.LinearRanker().ranking_loss(np.array([0, 0.5, 0.7]))) == repr(rs.GradedLoss("AP", grades=[0.5, 0.7]))


@pytest.fixture
def in_double_precision():
    """PyTorch's default dtype is float64."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(before)


BY_GRADIENT = {"linear, softmax": lambda: rs.LinearRanker(loss=rs.SoftmaxLoss(), max_iterations=20)}


@pytest.mark.parametrize("name", [*MAKE, *BY_GRADIENT])
@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_fit_needs_no_gradients_of_the_caller(name, mode):
    make = BY_GRADIENT.get(name) or (lambda: ranker_of(name))
    frame = frame_of(1)
    expected = make().fit(frame).predict(frame)
    with mode():
        ranker = make().fit(frame)
        assert torch.is_inference_mode_enabled() == (mode is torch.inference_mode)
        assert not torch.is_grad_enabled()
        np.testing.assert_array_equal(ranker.predict(frame), expected)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_objectives_need_no_gradients_of_the_caller(mode):
    frame = frame_of(1)
    X, y, qid = frame[["a", "b", "c"]], frame["label"].to_numpy(), frame["qid"]
    ranker = rs.LinearRanker(loss=rs.SoftmaxLoss(), prepare=())

    def values():
        steps = rs.boosting_objective("LambdaLoss")(y, np.zeros(len(y)), None, np.full(8, 6))
        return np.concatenate([*steps, [ranker.mean_loss(np.ones(3), X, y, qid)]])

    expected = values()
    with mode():
        np.testing.assert_array_equal(values(), expected)


@pytest.mark.parametrize("name", [*MAKE, "mlp, averages and noise"])
@pytest.mark.usefixtures("in_double_precision")
def test_rankers_and_their_scorers_do_not_depend_on_the_default_dtype(name):
    more = {"context": "mean", "noise": 0.1, "prepare": ["append-piecewise"], "device": "cpu"}
    ranker = rs.MLPRanker(max_epochs=2, **more) if name not in MAKE else ranker_of(name)
    frame = frame_of(1)
    ranker.fit(frame)
    again, lists = pickle.loads(pickle.dumps(ranker)), {"offsets": torch.arange(0, 49, 6)}
    X = torch.tensor(frame[["a", "b", "c"]].to_numpy(np.float32))
    found = [each.to_scorer()(X, **(lists if ranker._sees_lists else {})) for each in (ranker, again)]
    assert [each.dtype for each in found] == [torch.float32] * 2
    torch.testing.assert_close(*found)
    np.testing.assert_allclose(again.predict(frame), ranker.predict(frame))
