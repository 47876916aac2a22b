"""RankingMetric: means over batches, processes and whatever torchmetrics does to it."""

import math
import pickle

import pytest
import torch
from torchmetrics import MetricCollection

from rankstruct.measures import evaluate
from rankstruct.metric import RankingMetric

NAMES = ["AP", "nDCG@3", "RR", "AUC"]


@pytest.fixture
def lists():
    generator = torch.Generator().manual_seed(3)
    scores = torch.randint(5, (30, 7), generator=generator).float()
    labels = torch.randint(3, (30, 7), generator=generator) * (torch.arange(30) % 3 > 0).unsqueeze(1)
    where = torch.rand(30, 7, generator=generator) < 0.7
    where[4] = False
    where[9] = False
    return scores, labels, where


def means(scores, labels, where, **options):
    values = evaluate(scores, labels, NAMES, where=where, **options)
    return {name: value[where.any(-1)].nanmean().item() for name, value in values.items()}


@pytest.mark.parametrize("empty", [0, 1, "skip"])
@pytest.mark.parametrize("ties", ["expected", "input", "worst"])
def test_batches_add_up_to_the_whole(lists, empty, ties):
    metric = RankingMetric(NAMES, ties=ties, empty=empty)
    for start in range(0, 30, 8):
        scores, labels, where = (part[start : start + 8] for part in lists)
        metric.update(scores, labels, where=where)
    got = metric.compute()
    assert list(got) == NAMES
    assert all(value.dtype == torch.float64 for value in got.values())
    wanted = means(*lists, empty=empty, ties=ties)
    assert {name: value.item() for name, value in got.items()} == pytest.approx(wanted, abs=1e-12)


def test_flat_and_nested_lists(lists):
    scores, labels, where = lists
    flat = RankingMetric(NAMES)
    flat.update(scores[where], labels[where], offsets=torch.cat([torch.zeros(1).long(), where.sum(-1).cumsum(0)]))
    nested = RankingMetric(NAMES)
    scores, labels, where = (part.reshape(5, 6, 7) for part in lists)
    nested.update(scores, labels, where=where)
    for metric in (flat, nested):
        assert {name: value.item() for name, value in metric.compute().items()} == pytest.approx(means(*lists))


def test_unjudged_documents_are_left_out(lists):
    scores, labels, where = lists
    generator = torch.Generator().manual_seed(1)
    judged = (torch.rand(30, 7, generator=generator) < 0.6) & where
    pooled = judged | (torch.rand(30, 7, generator=generator) < 0.5)
    names, given = ["Bpref", "infAP", "AP"], {"judged": judged, "pooled": pooled}
    metric = RankingMetric(names)
    for part in (slice(0, 11), slice(11, 30)):
        batch = {name: each[part] for name, each in given.items()}
        metric.update(scores[part], labels[part], where=where[part], **batch)
    wanted = evaluate(scores, labels, names, where=where, **given)
    got = {name: value.item() for name, value in metric.compute().items()}
    assert got == pytest.approx({name: value[where.any(-1)].mean().item() for name, value in wanted.items()})
    flat = RankingMetric(names)
    offsets = torch.cat([torch.zeros(1).long(), where.sum(-1).cumsum(0)])
    flat.update(scores[where], labels[where], offsets=offsets, judged=judged[where], pooled=pooled[where])
    assert {name: value.item() for name, value in flat.compute().items()} == pytest.approx(got)


def test_values_are_drawn():
    metric = RankingMetric(["AP", "nDCG@2"])
    metric.update(torch.tensor([[2.0, 1.0], [1.0, 2.0]]), torch.tensor([[1, 0], [1, 0]]))
    values = [metric.compute(), metric.compute()]
    for figure, axes in (metric.plot(), metric.plot(values)):
        drawn = {label.get_text() for label in axes.get_legend().get_texts()} if axes.get_legend() else set()
        assert drawn == {"AP", "nDCG@2"}
        assert all(0.5 < line.get_ydata()[0] < 1 for line in axes.get_lines())
        figure.clear()


def test_empty_lists_are_counted(lists):
    scores, labels, where = lists
    metric = RankingMetric(["AP", "AUC"])
    metric.update(scores[:10], labels[:10], where=where[:10])
    metric.update(scores[10:], labels[10:], where=where[10:])
    relevant = (labels > 0) & where
    nothing = where.any(-1) & ~relevant.any(-1)
    everything = where.any(-1) & (relevant == where).all(-1)
    assert nothing.sum() > 0
    assert metric.empty_lists() == {"AP": int(nothing.sum()), "AUC": int((nothing | everything).sum())}
    metric.reset()
    assert metric.empty_lists() == {"AP": 0, "AUC": 0}


def test_empty_error(lists):
    metric = RankingMetric("AP", empty="error")
    with pytest.raises(ValueError, match="AP of list 0 is undefined"):
        metric.update(*lists[:2], where=lists[2])


def test_every_process_sees_the_mean_over_all_lists(lists):
    """The states of uneven shares of the lists, summed by torchmetrics' own synchronisation."""
    shares = [slice(0, 3), slice(3, 20), slice(20, 30)]
    states = []

    def gather(state, group=None):
        return states

    processes = [
        RankingMetric(NAMES, empty="skip", dist_sync_fn=gather, distributed_available_fn=lambda: True) for _ in shares
    ]
    for process, share in zip(processes, shares, strict=True):
        scores, labels, where = (part[share] for part in lists)
        process.update(scores, labels, where=where)
        states.append(next(iter(process.metric_state.values())).clone())
    alone = RankingMetric(NAMES, empty="skip")
    alone.update(*lists[:2], where=lists[2])
    for process in processes:
        got = {name: value.item() for name, value in process.compute().items()}
        assert got == pytest.approx({name: value.item() for name, value in alone.compute().items()}, abs=1e-14)
        assert process.empty_lists() == alone.empty_lists()
    own = means(*(part[shares[0]] for part in lists), empty="skip")
    assert processes[0].compute()["AP"].item() != pytest.approx(own["AP"])


def test_forward_gives_the_batch_and_adds_it(lists):
    metric = RankingMetric(NAMES)
    first, second = ([part[:12] for part in lists], [part[12:] for part in lists])
    assert {name: value.item() for name, value in metric(*first[:2], where=first[2]).items()} == pytest.approx(
        means(*first)
    )
    assert {name: value.item() for name, value in metric(*second[:2], where=second[2]).items()} == pytest.approx(
        means(*second)
    )
    assert {name: value.item() for name, value in metric.compute().items()} == pytest.approx(means(*lists))


def test_pickle_clone_reset(lists):
    metric = RankingMetric(NAMES, prefix="val/")
    metric.update(*lists[:2], where=lists[2])
    wanted = metric.compute()
    assert list(wanted) == [f"val/{name}" for name in NAMES]
    for copy in (pickle.loads(pickle.dumps(metric)), metric.clone()):
        assert copy.compute() == wanted
        copy.reset()
        scores, labels, where = (part[:5] for part in lists)
        copy.update(scores, labels, where=where)
        assert copy.compute()["val/AP"] != wanted["val/AP"]
    assert metric.compute() == wanted


def test_a_collection_keeps_metrics_apart():
    """torchmetrics merges metrics whose states look equal after one batch; here a batch without ties, all values 1."""
    metrics = MetricCollection(
        {
            "expected": RankingMetric("AP", prefix="a/"),
            "worst": RankingMetric("AP", ties="worst", prefix="b/"),
            "other": RankingMetric("RR", prefix="c/"),
        }
    )
    metrics.update(torch.tensor([[2.0, 1.0]]), torch.tensor([[1, 0]]))
    metrics.update(torch.tensor([[1.0, 1.0, 0.0]]), torch.tensor([[1, 0, 1]]))
    values = {name: value.item() for name, value in metrics.compute().items()}
    tied = (1 + 1 / 2) / 2 / 2 + (2 / 3) / 2
    assert values == pytest.approx({"a/AP": (1 + tied) / 2, "b/AP": (1 + 7 / 12) / 2, "c/RR": (1 + 0.75) / 2})


@pytest.mark.parametrize("cast", [lambda m: m.half(), lambda m: m.to(torch.bfloat16), lambda m: m.float()])
def test_counts_survive_a_model_in_half_precision(cast):
    module = torch.nn.ModuleDict({"metric": RankingMetric("RR"), "layer": torch.nn.Linear(1, 1)})
    metric = module["metric"]
    lists = torch.rand(3001, 4, generator=torch.Generator().manual_seed(0)), torch.ones(3001, 4)
    metric.update(*lists)
    cast(module)
    metric.update(*lists)
    assert metric.compute()["RR"].item() == 1.0
    metric.update(torch.tensor([[2.0, 1.0]]), torch.tensor([[0, 1]]))
    assert metric.compute()["RR"].item() == pytest.approx(6002.5 / 6003, abs=1e-12)
    metric.reset()
    metric.update(*lists)
    assert metric.compute()["RR"].dtype == torch.float64


def test_no_list_gives_nan():
    metric = RankingMetric("AP", empty="skip")
    metric.update(torch.zeros(2, 3), torch.zeros(2, 3))
    assert math.isnan(metric.compute()["AP"].item())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"ties": "docid"}, "ties of a RankingMetric must be 'expected', 'input' or 'worst', got 'docid'"),
        ({"empty": "none"}, "empty must be one of"),
        ({"convention": "letor", "ties": "worst"}, "convention='letor' keeps the input order"),
        ({"convention": "Letor"}, "convention must be one of None, 'letor'"),
    ],
)
def test_bad_options(options, message):
    with pytest.raises(ValueError, match=message):
        RankingMetric("AP", **options)


def test_it_shows_its_measures_and_options():
    assert repr(RankingMetric("AP")) == "RankingMetric(AP)"
    shown = repr(RankingMetric(["nDCG@10", "RR"], ties="worst", empty="skip", prefix="val/"))
    assert shown == "RankingMetric(nDCG@10, RR, ties=worst, empty=skip, prefix=val/)"
    assert repr(RankingMetric("AP", convention="letor")) == "RankingMetric(AP, ties=input, convention=letor)"


def test_names_of_other_libraries_are_answered(lists):
    scores, labels, where = lists
    metric = RankingMetric("AP")
    for call in (metric, metric.update):
        with pytest.raises(TypeError, match="there is no indexes=; pass qid=, the list of each document"):
            call(scores[where], labels[where], indexes=where.nonzero()[:, 0])
        with pytest.raises(TypeError, match="there is no mask=; pass where="):
            call(scores, labels, mask=where)
        with pytest.raises(TypeError, match="there is no target=; the arguments are scores and labels"):
            call(scores, target=labels)
        with pytest.raises(ValueError, match="diversity_groups= are hosts or topics"):
            call(scores[where], labels[where], diversity_groups=where.nonzero()[:, 0])
    with pytest.raises(
        TypeError, match="there is no top_k=; append the cut-off to the measure's name, such as 'nDCG@10'"
    ):
        RankingMetric("nDCG", top_k=10)
    together = MetricCollection([metric])  # which hands on what a metric takes
    together.update(scores, labels, where=where, preds=None)
    assert together.compute()["AP"].item() == pytest.approx(means(*lists)["AP"])
