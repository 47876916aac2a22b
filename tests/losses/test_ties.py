"""Documents that agree in everything have the same gradient, and the order of a list's documents changes nothing."""

import pytest
import torch
from losses.test_all_losses import LOSSES, both_ways, draw

#: Losses whose documentation says that the gradient of tied documents follows the input order, or the value too, and why.
BY_INPUT_ORDER = {
    "F1@5": "one fixed ideal ranking, by label and then input order",
    "nDCG@10-ideal": "one fixed ideal ranking, by label and then input order",
    "Diverse-nDCG@3-ideal": "one fixed ideal ranking, by label and then input order",
    **{
        f"Diverse-{name}": "a diverse ranking has one document of each group"
        for name in ("nDCG@3-ideal-tied", "nDCG@3-predicted", "RR@4-ideal-tied", "mWTA-predicted")
    },
    **{
        f"Lambda-{name}": "equal scores have different ranks, and with them weights"
        for name in ("ndcg1", "ndcg2", "lambdarank", "ndcg2++@3", "hinge")
    },
    **{f"Smooth-{name}": "the centres are those documents that the sort puts first" for name in ("nDCG", "nDCG@3")},
    "MarginMSE-first": "the first document is the positive",
}
every_loss = pytest.mark.parametrize(("name", "its"), LOSSES, ids=[name for name, _ in LOSSES])


def tied_lists(dtype):
    """Scores with ties, labels, groups and masks, of which some are all real."""
    for seed in range(3):
        scores, labels, where = draw(8, 12, seed=seed, dtype=dtype)
        groups = torch.randint(0, 5, scores.shape, generator=torch.Generator().manual_seed(seed))
        where[4:] = True
        for tied in (torch.zeros_like(scores), scores.round(), (2 * scores).round() / 2, scores.clamp(min=0)):
            yield tied, labels, groups, where


def alike(*each):
    """Whether two documents of a list agree in everything, bool `[..., i, j]`."""
    return torch.stack([one.unsqueeze(-1) == one.unsqueeze(-2) for one in each]).all(0)


@pytest.mark.sampled(4)
@every_loss
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
def test_documents_that_agree_in_everything_have_equal_gradients(name, its, dtype):
    near = 1e-4 if dtype == torch.float32 else 1e-9
    uneven = 0.0
    for scores, labels, groups, where in tied_lists(dtype):
        agreed = [scores, labels, where, *([groups] if its.takes_groups else [])]
        weights = torch.where(groups > 2, 2.0, 0.5).to(dtype)
        for reduction in ("mean", "none"):
            for given in ({}, {"item_weights": weights}) if its.item_weights else ({},):
                _, slope = both_ways(
                    its.make(reduction=reduction), scores, labels, where=where, **given, **its.groups(groups)
                )
                apart = (slope.unsqueeze(-1) - slope.unsqueeze(-2)).abs() / slope.abs().max().clamp(min=1e-30)
                uneven = max(uneven, float(apart[alike(*agreed, *given.values())].max()))
    if name in BY_INPUT_ORDER:
        assert uneven > near, "the gradient is even: no exception is needed"
    else:
        assert uneven <= near


@pytest.mark.sampled(4)
@every_loss
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
def test_the_order_of_the_documents_changes_nothing(name, its, dtype):
    """Not the value, ties or not; nor the gradient, unless several rankings of a list are equally bad."""
    if its.input_order:
        pytest.skip(BY_INPUT_ORDER[name])
    near = {"rtol": 1e-3, "atol": 1e-4} if dtype == torch.float32 else {"rtol": 1e-7, "atol": 1e-9}
    scores, labels, where = draw(8, 12, dtype=dtype)
    groups = torch.randint(0, 5, scores.shape, generator=torch.Generator().manual_seed(0))
    order = torch.randperm(12, generator=torch.Generator().manual_seed(1))
    weights = torch.where(groups > 2, 2.0, 0.5).to(dtype)
    for reduction in ("mean", "sum", "none"):
        loss = its.make(reduction=reduction)
        for mask in (where, torch.ones_like(where)):
            for given in ({}, {"item_weights": weights}) if its.item_weights else ({},):
                there = {each: values[:, order] for each, values in given.items()}
                for lists, tied in ((scores, False), (scores.round(), True)):
                    value, slope = both_ways(loss, lists, labels, where=mask, **given, **its.groups(groups))
                    turned = lists[:, order], labels[:, order]
                    options = {"where": mask[:, order], **there, **its.groups(groups[:, order])}
                    again, its_slope = both_ways(loss, *turned, **options)
                    torch.testing.assert_close(again, value, **near)
                    if not tied:
                        torch.testing.assert_close(its_slope, slope[:, order], **near)
