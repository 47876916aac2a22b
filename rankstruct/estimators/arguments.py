"""Names of arguments, options and attributes in other libraries, and what rankers have in their place."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from inspect import Parameter, Signature, signature
from typing import Any, TypeVar

from rankstruct import messages
from rankstruct.argument_names import NO_GROUPS
from rankstruct.messages import did_you_mean

__all__: list[str] = []

_CHOSEN = "pass the measure for selection, early stopping and score() as the first argument: BoostedRanker('nDCG@10')"
_STOPPED = "for early stopping use patience=, as in BoostedRanker(patience=50), and validation lists, X_valid="
_NO_START = "pass a ranker to begin with as BoostedRanker(start=...)"
#: What to say of arguments of `fit`, `predict` and `score` in scikit-learn, LightGBM, XGBoost and CatBoost.
OF_METHODS = {
    **dict.fromkeys(("eval_at", "eval_metric", "eval_names"), _CHOSEN),
    **dict.fromkeys(("early_stopping_rounds", "callbacks"), _STOPPED),
    **dict.fromkeys(("init_score", "init_model", "base_margin", "xgb_model", "baseline"), _NO_START),
    **dict.fromkeys(
        ("eval_set", "eval_group", "eval_qid"),
        "pass validation lists as X_valid=, y_valid= and qid_valid=, one id per document, which of sizes is "
        "np.repeat(np.arange(len(sizes)), sizes)",
    ),
    **dict.fromkeys(
        ("eval_sample_weight", "sample_weight_eval_set", "eval_init_score", "base_margin_eval_set"),
        "validation lists weigh the same; item_weights_valid= weighs their documents",
    ),
    **dict.fromkeys(("feature_name", "feature_names"), "pass X as a data frame, whose columns have names"),
    **dict.fromkeys(
        ("categorical_feature", "cat_features"),
        "make these columns of a data frame categories or strings, or pass BoostedRanker(options={'categorical_feature': [...]})",
    ),
    **dict.fromkeys(
        ("num_iteration", "iteration_range", "ntree_limit", "start_iteration", "ntree_end"),
        "the best number of trees is used; best_iterations_ has it",
    ),
    **dict.fromkeys(("raw_score", "output_margin", "prediction_type"), "scores are always raw"),
    **dict.fromkeys(
        ("pred_leaf", "pred_contrib", "pred_contribs"), "ask the library's models: ranker.models_[0].predict(...)"
    ),
    **dict.fromkeys(("group_id", "query_id", "query_ids", "qids"), "pass qid=, one id per document"),
    **dict.fromkeys(("sizes", "lengths", "query"), "pass group=, the sizes of consecutive lists"),
    "group_weight": "pass sample_weight=, one per list",
    "weight": "pass sample_weight=, one per list, or item_weights=, one per document",
    "verbose": "it is an option of the ranker, not of fit: BoostedRanker(verbose=True)",
    "positions": "pass position=",
    "propensities": "pass propensity=",
    "groups": NO_GROUPS.partition("; ")[2],
    "groups_valid": "hosts or topics of validation documents are diversity_groups_valid=",
}
#: Options of rankers that have other names in other libraries.
_SYNONYMS = {
    "C": ("alpha", "reg", "regularization"),
    "tolerance": ("tol",),
    "max_iterations": ("max_iter",),
    "hidden": ("hidden_layer_sizes", "hidden_layers", "hidden_sizes", "layers"),
    "max_epochs": ("epochs", "n_epochs", "num_epochs", "max_iter"),
    "lists_per_batch": ("batch_size",),
    "learning_rate": ("lr", "eta", "shrinkage_rate", "learning_rate_init"),
    "n_estimators": (
        *("num_boost_round", "n_trees", "num_trees", "num_tree", "num_iterations", "num_iteration", "iterations"),
        *("num_rounds", "num_round", "nrounds", "n_iter", "max_iter"),
    ),
    "num_leaves": ("max_leaves", "max_leaf_nodes", "num_leaf", "max_leaf"),
    "min_child_samples": ("min_data_in_leaf", "min_data_per_leaf", "min_data", "min_child_weight", "min_samples_leaf"),
    "subsample": ("bagging_fraction", "bagging", "sub_row"),
    "colsample_bytree": ("feature_fraction", "sub_feature", "rsm"),
    "n_jobs": ("num_threads", "num_thread", "thread_count", "nthread", "nthreads"),
    "patience": ("early_stopping_rounds", "early_stopping_round", "n_iter_no_change", "early_stopping"),
    "validation_share": ("validation_fraction", "validation_split", "test_size"),
    "random_state": ("seed", "random_seed"),
    "rankers": ("estimators", "models"),
    "folds": ("cv", "n_splits"),
    "time_budget": ("time_limit", "max_time"),
    "measure": ("metric", "metrics", "metric_types", "eval_metric", "eval_at", "scoring"),
    "loss": ("objective", "objective_type", "application", "app", "loss_function", "criterion"),
    "verbose": ("verbosity", "silent"),
}
_OPTIONS = {
    other: [here for here, names in _SYNONYMS.items() if other in names] for of in _SYNONYMS.values() for other in of
}
#: What to say of attributes and methods of other libraries' estimators.
_ATTRIBUTES = {
    **dict.fromkeys(("predict_log_proba", "decision_function", "transform"), "predict(X, qid) returns the scores"),
    "predict_proba": "predict(X, qid) returns the scores; calibrate='isotonic' makes them probabilities",
    **dict.fromkeys(("save_model", "load_model"), "use pickle, or rankstruct.save_scorer(ranker.to_scorer(), path)"),
    **dict.fromkeys(
        ("best_iteration_", "best_iteration", "best_ntree_limit", "tree_count_"),
        "best_iterations_ has that of each model of a BoostedRanker, best_epochs_ that of each network of an MLPRanker",
    ),
    **dict.fromkeys(("booster_", "booster", "get_booster"), "models_ has the boosters of a BoostedRanker"),
    **dict.fromkeys(
        ("best_score_", "best_score", "evals_result_", "evals_result", "loss_curve_", "validation_scores_"),
        "history_ has the validation measure of BoostedRanker and MLPRanker, validation_ that of LinearRanker",
    ),
    **dict.fromkeys(
        ("feature_name_", "feature_names_"), "feature_names_in_ has the names of the columns of a data frame"
    ),
    **dict.fromkeys(("n_features_", "n_features"), "n_features_in_ has the number of raw features"),
    **dict.fromkeys(("get_feature_importance", "feature_importance"), "BoostedRanker has feature_importances_"),
    "intercept_": "it would not change the order of a list",
}

_Called = TypeVar("_Called", bound=Callable[..., Any])


def explaining(other_names: Mapping[str, str]) -> Callable[[_Called], _Called]:
    """A decorator of methods: `messages.explaining`, with the names that rankers have for options of other libraries.

    Args:
        other_names: what to say of arguments of other libraries; under "", of all others that have no other name here either,
            with `{0}` for their name and `{1}` for a list of the arguments.

    >>> class Example:
    ...     @explaining({"groups": "pass qid="})
    ...     def fit(self, X, y, *, qid=None): ...
    >>> Example().fit(1, 2, groups=3)
    Traceback (most recent call last):
    ...
    TypeError: there is no groups=; pass qid=
    """

    def message(argument: str, known: Mapping[str, Parameter]) -> str:
        arguments = [name for name in known if name != "self"]
        usual = other_names.get("", "{1}").format(argument, f"the arguments are {', '.join(arguments)}")
        return f"there is no {argument}=; {other_names.get(argument) or _renamed(argument, known) or usual}"

    def decorate(function: _Called) -> _Called:
        kinds = {each.kind for each in signature(function).parameters.values()}
        takes_any = kinds & {Parameter.VAR_KEYWORD, Parameter.VAR_POSITIONAL}
        return function if takes_any else messages.explaining({}, message)(function)

    return decorate


def with_inherited(kind: type) -> Callable[..., None]:
    """The constructor of a class, in whose signature the keyword arguments of the base class take the place of `**options`."""
    begin: Any = kind.__init__  # type: ignore[misc]
    own = _parameters(begin)
    if others := [name for name, each in own.items() if each.kind is Parameter.VAR_KEYWORD]:
        del own[others[0]]
        inherited = _parameters(kind.__mro__[1].__init__)  # type: ignore[misc]
        begin.__signature__ = Signature([*own.values(), *(each for name, each in inherited.items() if name not in own)])
    return begin


def _parameters(function: Callable[..., Any]) -> dict[str, Parameter]:
    """The parameters of a function, whose annotations are evaluated in its own module, if it has all of their names."""
    try:
        return dict(signature(function, eval_str=True).parameters)
    except NameError:  # of what is imported for type checkers alone
        return dict(signature(function).parameters)


def _renamed(argument: str, known: Mapping[str, Any]) -> str:
    here = [each for each in _OPTIONS.get(argument, ()) if each in known]
    if here:
        return f"pass {here[0]}="
    return did_you_mean(argument, known, least=0.7).removeprefix("; ")


def own_name(option: str, known: Iterable[str]) -> str | None:
    """The one of the known arguments that has this name or does the same as another library's option of this name, if any.

    >>> own_name("max_leaves", ["num_leaves", "noise"])
    'num_leaves'
    """
    return next((each for each in (option, *_OPTIONS.get(option, ())) if each in known), None)


def lacking(kind: type, name: str) -> str | None:
    """What to say of an attribute that a ranker does not have; None if there is nothing.

    >>> lacking(dict, "decision_function")
    "'dict' object has no attribute 'decision_function'; predict(X, qid) returns the scores"
    """
    hint = _ATTRIBUTES.get(name)
    return hint and f"{kind.__name__!r} object has no attribute {name!r}; {hint}"
