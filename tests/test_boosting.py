"""The losses as custom objectives of libraries of boosted trees; these are extras."""

import copy
import pickle
import warnings

import numpy as np
import pytest
import torch
from losses.test_all_losses import LOSSES, STUCK

import rankstruct as rs

#: It says of itself that it needs a sensible start and a sigma of the size of score differences.
NEEDS_A_START = {"Smooth-nDCG"}
SMOOTH = {
    "squared": rs.SquaredLoss("gain"),
    "ordinal": rs.OrdinalLoss(4),
    "ranknet": rs.RankNetLoss(sigma=1.5),
    **{
        scheme: rs.LambdaLoss("nDCG@4", scheme=scheme, sigma=0.7)
        for scheme in ("ndcg1", "ndcg2", "ndcg2++", "lambdarank")
    },
    "listnet": rs.ListNetLoss(),
    "listmle": rs.ListMLELoss(),
    **{f"softmax {target}": rs.SoftmaxLoss(target, temperature=2.0) for target in ("label", "share", "teacher")},
    "uniform": rs.LambdaLoss(scheme="uniform"),
    "combined": rs.CombinedLoss([rs.ListNetLoss(), rs.RankNetLoss()], weights=[0.3, 2.0]),
}


def readme(lists=200, size=30):
    """The README's data: documents `[documents, 8]`, labels, sizes of the lists."""
    torch.manual_seed(0)
    features = torch.randn(lists, size, 8)
    labels = (features[..., 0] + torch.randn(lists, size) > 1.5).long()
    return features.view(-1, 8).numpy(), labels.flatten().numpy(), np.full(lists, size)


def draw(dtype=torch.float64, ties=False):
    """Flat scores, labels and offsets of lists of many lengths: some with one document, one without a difference."""
    generator = torch.Generator().manual_seed(3)
    lengths = torch.tensor([5, 1, 7, 4, 2])
    scores = 3 * torch.randn(19, generator=generator, dtype=dtype)
    labels = torch.randint(0, 4, (19,), generator=generator)
    labels[13:17] = 2
    return scores.round() if ties else scores, labels, torch.cat([torch.zeros(1, dtype=torch.int64), lengths.cumsum(0)])


@pytest.mark.sampled(2)
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("loss", SMOOTH.values(), ids=SMOOTH)
def test_second_derivatives_are_the_diagonal_of_the_hessian(loss, dtype, ties, weighted):
    scores, labels, offsets = draw(dtype, ties)
    loss = copy.deepcopy(loss)
    loss.reduction = "sum"
    more = (
        {"item_weights": 3 * torch.rand(19, generator=torch.Generator().manual_seed(0), dtype=dtype)}
        if weighted
        else {}
    )
    if weighted:
        more["item_weights"][[0, 8, 13, 14, 15, 16]] = 0.0  # some, and a whole list

    def diagonal(scores):
        return torch.autograd.functional.hessian(lambda s: loss(s, labels, offsets=offsets, **more), scores).diagonal()

    exact = diagonal(scores.double())
    if ties and isinstance(
        loss, rs.ListMLELoss
    ):  # which has none there: heavier documents first, or the mean over both orders
        apart = 1e-9 * more.get("item_weights", torch.arange(19)).double()
        other = apart if weighted else -apart
        exact = (diagonal(scores.double() + apart) + diagonal(scores.double() + other)) / 2
    found = rs.losses.second_derivatives(loss, scores, labels, offsets, **more)
    assert found.dtype == dtype
    torch.testing.assert_close(found.double(), exact, rtol=1e-4, atol=1e-6)
    assert loss.second_derivatives(scores[:0], labels[:0], offsets[:1]).shape == (0,)


def test_second_derivatives_are_known_of_smooth_convex_losses_alone():
    lists = draw()
    shared = rs.CombinedLoss([rs.ListNetLoss(), rs.RankNetLoss()], slack="shared")
    mixed = rs.CombinedLoss([rs.ListNetLoss(), rs.RankSVMLoss()])
    for loss in (rs.GradedLoss("AUC"), rs.OrdinalLoss(4, "hinge"), rs.SmoothLoss(), shared, mixed, torch.nn.Identity()):
        assert rs.losses.second_derivatives(loss, *lists) is None


@pytest.mark.parametrize("loss", [*SMOOTH.values(), rs.PLRankLoss("nDCG@3", samples=20)], ids=[*SMOOTH, "pl-rank"])
def test_second_derivatives_far_apart_are_finite(loss):
    for dtype in (torch.float32, torch.float64):
        scores, labels, offsets = draw(dtype)
        largest = torch.finfo(dtype).max / 2
        for factor in (1e-30, 1e3, 1e30, largest):
            for apart in (scores * min(factor, largest / 8), scores.sign() * factor):
                for weights in ((), (torch.where(scores > 0, 1.0, 0.0).to(dtype),)):
                    found = loss.second_derivatives(apart, labels, offsets, *weights)
                    assert found.isfinite().all()
                    assert (found >= 0).all() or isinstance(loss, rs.PLRankLoss)  # not convex


@pytest.mark.parametrize(
    "loss",
    [rs.StructuredHingeLoss("AP"), rs.GradedLoss("AUC"), rs.ListNetLoss(), rs.SmoothLoss(), SMOOTH["combined"]],
    ids=str,
)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_gradient_is_that_of_the_mean_loss_times_the_documents(loss, dtype):
    scores, labels, offsets = draw()
    if isinstance(loss, rs.StructuredHingeLoss):
        labels = (labels > 1).long()
    weights = torch.tensor([1.0, 2.0, 0.5, 3.0, 0.0])
    scores = scores.numpy().astype(dtype)
    leaf = torch.tensor(scores, requires_grad=True)
    (each,) = torch.autograd.grad(
        (
            loss(leaf, labels, offsets=offsets, reduction="sum")
            if not hasattr(loss, "losses")
            else 5 * loss(leaf, labels, offsets=offsets)
        ),
        leaf,
    )
    objective, sizes = rs.boosting_objective(loss), offsets.diff().numpy()
    gradient, hessian = objective(labels.numpy(), scores, None, sizes)
    np.testing.assert_allclose(gradient, each * 19 / 5, rtol=1e-5, atol=1e-6)
    assert (hessian >= 0).all()
    for given in (weights.numpy(), weights.repeat_interleave(offsets.diff()).numpy()):
        weighted, curved = objective(labels.numpy(), scores, given, sizes)
        factors = weights.repeat_interleave(offsets.diff()).numpy()
        np.testing.assert_allclose(weighted, gradient * factors, rtol=1e-6)
        np.testing.assert_allclose(curved, hessian * factors, rtol=1e-6)


def test_curvature_of_a_hinge_is_the_weight_of_its_pairs_and_bounds_the_smoothed_one():
    """A pair weighs 1 / (p m): a relevant document 1 / p, another 1 / m, whatever the list."""
    labels, sizes = np.repeat([1, 0, 1, 0], [2, 38, 10, 30]), np.array([40, 40])
    objective = rs.boosting_objective("AUC")
    at_zero, far = (objective(labels, scores, None, sizes)[1] for scores in (np.zeros(80), 9.0 * labels))
    for found in (at_zero, far):
        weights = found / np.repeat([1 / 2, 1 / 38, 1 / 10, 1 / 30], [2, 38, 10, 30])
        assert weights.max() < 1.6 * weights.min()
    generator, total = np.random.default_rng(0), np.zeros(80)
    for _ in range(400):
        noise = generator.standard_normal(80)
        total += noise * objective(labels, noise, None, sizes)[0] / 400
    for rows in np.split(np.arange(80), [2, 40, 50]):  # Stein: the second derivative of the smoothed loss
        assert 0 < total[rows].mean() < far[rows].mean()


def test_the_same_lists_have_the_same_curvature_whatever_was_seen_before():
    objective, scores = rs.boosting_objective("AP"), np.linspace(0, 1, 12)
    first, second = (np.array([1, 0, 0] * 4), np.array([3] * 4)), (np.array([1, 0, 0, 0] * 3), np.array([4] * 3))
    expected = [rs.boosting_objective("AP")(y, scores, None, sizes) for y, sizes in (first, second)]
    for y, sizes in (first, second, first):
        found = pickle.loads(pickle.dumps(objective))(y, scores, None, sizes)
        np.testing.assert_array_equal(found, objective(y, scores, None, sizes))
        np.testing.assert_array_equal(found, expected[len(sizes) == 3])


@pytest.mark.parametrize("labels", [[1, 0, 2, 0, 1, 0], [0.5, 0, 2.25, 0, 1, 0.75]], ids=["grades", "real"])
def test_later_steps_on_the_same_lists_are_those_of_torch(labels):
    """From the second call on `LambdaLoss` is found by its loops alone, for scores of either dtype."""
    loss, y, sizes = rs.LambdaLoss("nDCG@2"), np.array(labels), np.array([4, 2])
    objective = rs.boosting_objective(loss)
    for seed, dtype in enumerate([np.float64, np.float64, np.float32, np.float64]):
        scores = np.random.default_rng(seed).normal(size=6).astype(dtype)
        leaf = torch.tensor(scores).requires_grad_()
        loss(leaf, torch.tensor(y), offsets=torch.tensor([0, 4, 6])).backward()
        np.testing.assert_allclose(objective(y, scores, None, sizes)[0], 6 * leaf.grad, rtol=1e-5)


def test_what_is_wrong_is_refused_in_a_line():
    y, zeros, sizes = np.array([1, 0, 0, 1]), np.zeros(4), np.array([2, 2])
    objective = rs.boosting_objective("AP")
    for group in (None, np.array([])):
        with pytest.raises(ValueError, match="the lists are missing; pass group= to the training data"):
            objective(y, zeros, None, group)
    with pytest.raises(ValueError, match="sizes of the lists, with sum 4; got sum 5"):
        objective(y, zeros, None, [2, 3])
    with pytest.raises(ValueError, match="weights must have one entry per list, or one per document"):
        objective(y, zeros, [1.0, 2.0, 1.0, 1.0], sizes)
    with pytest.raises(ValueError, match="StructuredHingeLoss needs diversity_groups=, one id per training document"):
        rs.boosting_objective(rs.StructuredHingeLoss("diverse_nDCG@3"))
    with pytest.raises(ValueError, match="item_weights must be finite numbers, 0 or more"):
        rs.boosting_objective("AP", item_weights=[1.0, -1.0])
    with pytest.raises(ValueError, match="item_weights must have one entry per training document, 4; got 3"):
        rs.boosting_objective(rs.RankNetLoss(), item_weights=np.ones(3))(y, zeros, None, sizes)
    with pytest.raises(TypeError, match="this loss does not support item_weights"):
        rs.boosting_objective("AP", item_weights=np.ones(4))(y, zeros, None, sizes)
    with pytest.raises(ValueError, match="diversity_groups must have one entry per training document, 4; got 3"):
        rs.boosting_objective(rs.StructuredHingeLoss("diverse_nDCG@3"), diversity_groups=["a", "b", "a"])(
            y, zeros, None, sizes
        )


def test_second_derivatives_of_a_policy_count_by_their_size():
    scores, labels, offsets = draw()
    loss = rs.PLRankLoss("nDCG@3", samples=2000)
    torch.manual_seed(0)
    gradient, hessian = rs.boosting_objective(loss)(labels.numpy(), scores.numpy(), None, offsets.diff().numpy())
    exact = loss.second_derivatives(scores, labels, offsets).abs().numpy() * 19 / 5
    assert (hessian >= 0).all()
    np.testing.assert_allclose(hessian, exact, atol=0.1)
    assert (np.abs(gradient) > 2 * hessian).any()  # so it is not what bounds a gradient


@pytest.mark.parametrize(
    "loss", [rs.RankNetLoss(), rs.RankSVMLoss(), rs.PerturbedLoss(rs.ListNetLoss(), sigma=0.0)], ids=str
)
def test_item_weights_of_1_change_nothing_and_of_0_leave_documents_out(loss):
    scores, labels, offsets = (each.numpy() for each in draw())
    kept = np.arange(19) % 4 > 0
    sizes, fewer = np.diff(offsets), np.add.reduceat(kept, offsets[:-1])
    plain = rs.boosting_objective(loss)(labels, scores, None, sizes)
    ones = rs.boosting_objective(loss, item_weights=np.ones(19))(labels, scores, None, sizes)
    np.testing.assert_allclose(ones, plain, atol=1e-12)
    for weights in (kept, np.where(kept, 1 + labels, 0.0)):
        found = np.stack(rs.boosting_objective(loss, item_weights=weights)(labels, scores, None, sizes))
        alone = rs.boosting_objective(loss, item_weights=weights[kept])(labels[kept], scores[kept], None, fewer)
        assert (found[:, ~kept] == 0).all()
        np.testing.assert_allclose(found[0, kept], alone[0] * (19 / kept.sum()), atol=1e-12)
        if isinstance(loss, rs.RankNetLoss):  # that of the others is estimated from noise, which is other noise
            np.testing.assert_allclose(found[1, kept], alone[1] * (19 / kept.sum()), atol=1e-12)
    assert not np.allclose(found[0], plain[0])


@pytest.mark.sampled(3)
@pytest.mark.slow
@pytest.mark.parametrize("its", [pytest.param(its, id=name) for name, its in LOSSES if name not in STUCK])
def test_no_loss_stays_where_it_starts_under_lightgbm(its, request):
    lightgbm = pytest.importorskip("lightgbm")
    X, y, sizes = readme()
    diversity_groups = np.tile(np.arange(30), 200) if its.takes_groups else None
    start = None
    if request.node.callspec.id in NEEDS_A_START:
        start = X @ np.linalg.lstsq(X, y - y.mean(), rcond=None)[0] * 3
    data = lightgbm.Dataset(X, y, group=sizes, init_score=start)
    objective = rs.boosting_objective(its.make(), diversity_groups=diversity_groups)
    model = lightgbm.train({"objective": objective, "num_threads": 1, "verbosity": -1}, data, 20)
    scores = model.predict(X) + (0 if start is None else start)
    assert rs.boosting_metric("AP")(y, scores, None, sizes)[1] > 0.5
    if start is not None:
        before, after = (
            its.make()(torch.tensor(s).view(200, 30), torch.tensor(y).view(200, 30)) for s in (start, scores)
        )
        assert after < 0.9 * before


def test_squared_loss_makes_the_trees_of_a_regression():
    lightgbm = pytest.importorskip("lightgbm")
    X, y, sizes = readme(40)
    options = {"num_threads": 1, "verbosity": -1, "boost_from_average": False, "learning_rate": 0.3}
    found, expected = (
        lightgbm.train({"objective": objective, **options}, lightgbm.Dataset(X, y, group=sizes), 10).predict(X)
        for objective in (rs.boosting_objective(rs.SquaredLoss()), "regression")
    )
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_every_way_that_lightgbm_calls():
    lightgbm = pytest.importorskip("lightgbm")
    X, y, sizes = readme(40)
    options = {"num_threads": 1, "verbosity": -1, "learning_rate": 0.3, "metric": "None"}
    objective, metric, seen = rs.boosting_objective("nDCG@10"), rs.boosting_metric("nDCG@10"), {}
    data = lightgbm.Dataset(X, y, group=sizes)
    keep = lightgbm.record_evaluation(seen)
    model = lightgbm.train(
        {"objective": objective, **options}, data, 10, valid_sets=[data], feval=metric, callbacks=[keep]
    )
    ranker = lightgbm.LGBMRanker(objective=objective, n_estimators=10, **options)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # 4.7 has new names for what 4.0 calls eval_set
        ranker.fit(X, y, group=sizes, eval_set=[(X, y)], eval_group=[sizes], eval_metric=metric)
    np.testing.assert_allclose(ranker.predict(X), model.predict(X))
    (values,) = seen["training"].values()
    assert values[-1] == pytest.approx(metric(y, model.predict(X), None, sizes)[1])
    assert values == pytest.approx(next(iter(ranker.evals_result_.values()))["nDCG@10"])
    assert values[-1] > values[0]


@pytest.mark.needs("xgboost")
def test_every_way_that_xgboost_calls():
    import xgboost

    X, y, sizes = readme(40)
    objective, metric, seen = rs.boosting_objective("nDCG@10"), rs.boosting_metric("nDCG@10"), {}
    data = xgboost.DMatrix(X, y, group=sizes)
    data.set_weight(np.ones(len(sizes)))
    options = {"nthread": 1, "base_score": 0, "disable_default_eval_metric": True}
    model = xgboost.train(
        options,
        data,
        10,
        obj=objective,
        custom_metric=metric,
        evals=[(data, "train")],
        evals_result=seen,
        verbose_eval=0,
    )
    values = seen["train"]["nDCG@10"]
    assert values[-1] == pytest.approx(metric(y, model.predict(data), None, sizes)[1], abs=1e-6)
    assert values[-1] > 0.7


def test_small_gradients_are_left_to_one_thread_which_no_longer_holds_after_them():
    seen, before = [], torch.get_num_threads()

    class Watched(rs.RankNetLoss):
        def forward(self, scores, labels, **lists):
            seen.append(torch.get_num_threads())
            return super().forward(scores, labels, **lists)

    torch.set_num_threads(2)
    try:
        rs.boosting_objective(Watched())(np.array([1.0, 0.0]), np.zeros(2), None, np.array([2]))
        assert seen
        assert set(seen) == {1}
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
