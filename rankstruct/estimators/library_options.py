"""Options of LightGBM and XGBoost that a `BoostedRanker` passes on, and those that are refused, since they would do nothing here.

The objective is always a loss of rankstruct, so options of the libraries' own objectives have no effect; nor have names that the
libraries do not know, of which they say nothing. CatBoost, whose losses are its own, raises for unknown names itself.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np

from rankstruct.messages import ArgumentError, did_you_mean, import_extra, shortened

__all__: list[str] = []

_TITLES = {"lightgbm": "LightGBM", "xgboost": "XGBoost"}
_LOSS = "pass loss=, such as LambdaLoss('nDCG@30') with its options"
_GAIN = "gains are those of the measure: pass loss=LambdaLoss(nDCG(30, gain='linear')), or measure=nDCG(10, gain=...)"
_CUT_OFF = "the cut-off is that of the loss: pass loss=LambdaLoss('nDCG@30')"
_SIGMA = "the steepness is that of the loss: pass loss=LambdaLoss('nDCG@30', sigma=1.0)"
_PAIRS = "weights of pairs are those of the loss: pass loss=LambdaLoss('nDCG@30', scheme='lambdarank')"
_WEIGHTS = "pass sample_weight= or item_weights= to fit"
_CLICKS = "positions and propensities of clicks are arguments of fit, position= and propensity="
_GAINS = "feature_importances_ are shares of the gain; others are those of models_[0]"
_ALWAYS_0 = "there is no such start; pass start=, a ranker"

#: Options of the libraries' own objectives, which are not used here, and what takes their place.
REFUSED: dict[str, dict[str, str]] = {
    "lightgbm": {
        "label_gain": _GAIN,
        "lambdarank_truncation_level": _CUT_OFF,
        "lambdarank_norm": _PAIRS,
        "lambdarank_position_bias_regularization": _CLICKS,
        "sigmoid": _SIGMA,
        **dict.fromkeys(("is_unbalance", "unbalance", "unbalanced_sets", "scale_pos_weight"), _WEIGHTS),
        **dict.fromkeys(("pos_bagging_fraction", "pos_sub_row", "pos_subsample", "pos_bagging"), _WEIGHTS),
        **dict.fromkeys(("neg_bagging_fraction", "neg_sub_row", "neg_subsample", "neg_bagging"), _WEIGHTS),
        "boost_from_average": _ALWAYS_0,
        **dict.fromkeys(("objective_seed", "reg_sqrt", "alpha", "fair_c", "poisson_max_delta_step"), _LOSS),
        **dict.fromkeys(("tweedie_variance_power", "num_class", "num_classes"), _LOSS),
        **dict.fromkeys(("multi_error_top_k", "auc_mu_weights"), "pass measure="),
        **dict.fromkeys(("early_stopping_min_delta", "first_metric_only"), "use patience= and measure="),
        **dict.fromkeys(("importance_type", "saved_feature_importance_type"), _GAINS),
    },
    "xgboost": {
        "lambdarank_pair_method": _PAIRS,
        "lambdarank_num_pair_per_sample": _CUT_OFF,
        **dict.fromkeys(("lambdarank_normalization", "lambdarank_score_normalization"), _PAIRS),
        **dict.fromkeys(("lambdarank_unbiased", "lambdarank_bias_norm"), _CLICKS),
        "ndcg_exp_gain": _GAIN,
        "scale_pos_weight": _WEIGHTS,
        **dict.fromkeys(
            ("tweedie_variance_power", "quantile_alpha", "huber_slope", "num_class", "expectile_alpha"), _LOSS
        ),
        **dict.fromkeys(("aft_loss_distribution", "aft_loss_distribution_scale"), _LOSS),
        "importance_type": _GAINS,
    },
}
#: The options by which the libraries choose another kind of boosting, with the kinds that are possible here.
_KINDS = {
    "lightgbm": (("boosting", "boosting_type", "boost"), ("gbdt", "gbrt", "dart", "goss")),
    "xgboost": (("booster",), ("gbtree", "dart")),
}


def refused_arguments() -> dict[str, str]:
    """What to say of options of the libraries' objectives as arguments of a ranker, but not where the libraries differ.

    >>> refused_arguments()["ndcg_exp_gain"][:38]
    'gains are those of the measure: pass l'
    """
    refused = {name: text for of in REFUSED.values() for name, text in of.items()}
    del refused["alpha"]  # XGBoost's L1 penalty
    return refused


def check_is_dictionary(options: Any) -> None:
    """Raise ArgumentError unless options are a dictionary with names, or None.

    >>> check_is_dictionary(["depth"])
    Traceback (most recent call last):
    ...
    rankstruct.messages.ArgumentError: options must be a dictionary, such as {'max_depth': 4}, or None, got ['depth']
    """
    if options is not None and not (isinstance(options, Mapping) and all(isinstance(name, str) for name in options)):
        told = f"must be a dictionary, such as {{'max_depth': 4}}, or None, got {shortened(options)}"
        raise ArgumentError(told, argument="options", value=options)


def check_library_options(library: str, options: Mapping[str, Any] | None) -> None:
    """Raise ValueError for options that the library does not know or would not use; ImportError if it is not installed."""
    if not options or library not in _TITLES:
        return
    title = _TITLES[library]
    for name in options:
        if name in REFUSED[library]:
            raise ValueError(
                f"options must not have {name!r}, which {title} does not use with a loss of rankstruct; {REFUSED[library][name]}"
            )
    names, kinds = _KINDS[library]
    for name in names:
        if options.get(name, kinds[0]) not in kinds:
            raise ValueError(
                f"options={{{name!r}: {shortened(options[name])}}} is not possible; it must be one of "
                f"{', '.join(map(repr, kinds))}, which grow trees by the gradients of a loss of rankstruct"
            )
    (_check_lightgbm if library == "lightgbm" else _check_xgboost)(options)


def rescales_trees(library: str, options: Mapping[str, Any] | None) -> str | None:
    """The option, as it was typed, by which later trees change earlier ones, so that the first of them are not the earlier model.

    >>> rescales_trees("lightgbm", {"boosting_type": "dart"})
    "options={'boosting_type': 'dart'}"
    """
    names = _KINDS[library][0] if library in _KINDS else ()
    found = [name for name in names if (options or {}).get(name) == "dart"]
    return f"options={{{found[0]!r}: 'dart'}}" if found else None


def _unknown(title: str, name: str, known: Any) -> ValueError:
    return ValueError(f"options has {name!r}, which {title} does not use{did_you_mean(name, known)}")


def _check_lightgbm(options: Mapping[str, Any]) -> None:
    """Raise ValueError for a name that LightGBM's list of parameters and their aliases lacks."""
    aliases = getattr(import_extra("lightgbm.basic", "boosting"), "_ConfigAliases", None)
    list_all = getattr(aliases, "_get_all_param_aliases", None)  # not public: without it nothing is checked
    of = list_all() if list_all is not None else {}
    known = {*of, *(each for names in of.values() for each in names)}
    for name in options if known else ():
        if name not in known:
            raise _unknown("LightGBM", name, sorted(known))


def _check_xgboost(options: Mapping[str, Any]) -> None:
    """Raise ValueError for what XGBoost warns of, if its messages are not off, as they are in training."""
    library = import_extra("xgboost", "boosting")
    data = library.DMatrix(np.zeros((1, 1)), [0.0])
    with library.config_context(), warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        booster = library.Booster({"booster": "gbtree"}, [data])
        known = re.findall(r'"(\w+)":', booster.save_config())
        try:
            library.Booster({**options, "validate_parameters": True, "verbosity": 1}, [data]).save_config()
        except (library.core.XGBoostError, ValueError, TypeError):  # a wrong value, of which training tells
            return
    unused = re.findall(r"Parameters: \{(.*?)\} are not used", " ".join(str(each.message) for each in said), re.DOTALL)
    for name in re.findall(r'"([^"]+)"', " ".join(unused)):
        raise _unknown("XGBoost", name, sorted(set(known)))
