"""Scorers of whole lists: any order of documents, padding, lists of one, both layouts, gradients, export, files."""

import copy
import itertools
import pickle

import pytest
import torch
from torch.export import Dim, export

import rankstruct as rs
from rankstruct.models import DeepSetScorer, EnsembleScorer, MeanScorer, PreparedScorer, SumScorer

SCORERS = {
    "attention": lambda: rs.ContextScorer(3),
    "gate, two blocks, width no multiple of heads": lambda: rs.ContextScorer(
        3, hidden=5, width=7, blocks=2, heads=3, combine="gate", dropout=0.3, noise=0.2
    ),
    "attention alone": lambda: rs.ContextScorer(3, combine="attention", width=4, heads=1),
    "attention without hidden layers": lambda: rs.ContextScorer(3, hidden=()),
    "mean": lambda: DeepSetScorer(3),
    "mean and max": lambda: DeepSetScorer(3, (6, 5), dropout=0.3, pool=("mean", "max"), noise=0.2),
}
every_scorer = pytest.mark.parametrize("make", [pytest.param(make, id=name) for name, make in SCORERS.items()])
RAGGED = torch.tensor([0, 3, 3, 4, 11])  # a list without documents, and one of a single one


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


def wide(make):
    """In float64, so that agreement is far closer than any effect of one document on another."""
    return make().double().eval()


def close(found, expected):
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


@every_scorer
def test_scores_follow_the_documents_in_any_order(make):
    scorer, features = wide(make), torch.randn(2, 9, 3).double()
    order = torch.randperm(9)
    close(scorer(features[:, order]), scorer(features)[:, order])


@every_scorer
def test_scores_depend_on_the_other_documents_of_their_list_alone(make):
    scorer, features = wide(make), torch.randn(11, 3).double()
    before = scorer(features, offsets=RAGGED)
    changed = features.clone()
    changed[10] += 5
    after = scorer(changed, offsets=RAGGED)
    assert torch.equal(after[:4], before[:4])
    assert ((after - before)[4:].abs() > 1e-6).all()


@every_scorer
@pytest.mark.parametrize("filling", [0.0, 1e6, float("nan"), float("inf")])
def test_padding_changes_nothing(make, filling):
    scorer, features = wide(make), torch.randn(11, 3).double()
    padded, where = torch.full((2, 2, 9, 3), filling).double(), torch.zeros(2, 2, 9, dtype=torch.bool)
    for row, (first, last) in enumerate(itertools.pairwise(RAGGED)):
        places = torch.randperm(9)[: last - first].sort().values  # padding may stand between documents
        where.view(4, 9)[row, places] = True
        padded.view(4, 9, 3)[row, places] = features[first:last]
    scores = scorer(padded, where=where)
    assert scores.shape == (2, 2, 9)
    assert scores.isfinite().all()
    close(scores[where], scorer(features, offsets=RAGGED))
    alone = [scorer(features[first:last]) for first, last in itertools.pairwise(RAGGED)]
    close(scores[where], torch.cat(alone))
    scorer.train().zero_grad()
    torch.where(where, scorer(padded, where=where), 0).sum().backward()
    assert all(weights.grad.isfinite().all() for weights in scorer.parameters())


@every_scorer
def test_lists_of_one_document_and_of_padding_alone(make):
    scorer, features = wide(make), torch.randn(4, 1, 3).double()
    close(scorer(features).flatten(), scorer(features[:, 0], offsets=torch.arange(5)))
    assert scorer(features).flatten().diff().abs().min() > 1e-6
    nothing = scorer(features, where=torch.zeros(4, 1, dtype=torch.bool))
    assert nothing.isfinite().all()
    for shape in [(0, 3), (2, 0, 3), (0, 5, 3)]:
        assert scorer(torch.zeros(shape).double()).shape == shape[:-1]
    assert scorer(torch.zeros(0, 3).double(), offsets=torch.tensor([0, 0])).shape == (0,)


@every_scorer
def test_lists_of_very_different_lengths_are_padded_in_groups(make, monkeypatch):
    lengths = torch.tensor([1, 40, 2, 0, 3, 17, 16, 1, 33])
    offsets = torch.cat([torch.zeros(1, dtype=torch.int64), lengths.cumsum(0)])
    scorer, features = wide(make), torch.randn(int(offsets[-1]), 3).double()
    together = scorer(features, offsets=offsets)
    sizes, usual = [], scorer._padded_scores

    def padded_scores(lists, where):
        sizes.append(lists.shape[:2])
        return usual(lists, where)

    monkeypatch.setattr("rankstruct.models.context._TOGETHER", 0)
    monkeypatch.setattr("rankstruct.models.context._DOCUMENTS", 64)
    monkeypatch.setattr(scorer, "_padded_scores", padded_scores)
    close(scorer(features, offsets=offsets), together)
    assert len(sizes) > 4
    assert sum(rows * columns for rows, columns in sizes) <= 2 * len(features)


@every_scorer
def test_gradients(make):
    scorer, features = wide(make), torch.randn(7, 3).double()
    names, weights = zip(*scorer.named_parameters(), strict=True)

    def scores(features, *weights):
        given = dict(zip(names, weights, strict=True))
        return torch.func.functional_call(scorer, given, (features,), {"offsets": torch.tensor([0, 4, 7])})

    assert torch.autograd.gradcheck(scores, (features.requires_grad_(), *weights), fast_mode=True)


@every_scorer
def test_single_precision_agrees_with_double(make):
    scorer, features = make().eval(), torch.randn(5, 8, 3)
    expected = copy.deepcopy(scorer).double()(features.double())
    torch.testing.assert_close(scorer(features).double(), expected, rtol=1e-4, atol=1e-5)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = scorer(features, where=torch.ones(5, 8, dtype=torch.bool))
    torch.testing.assert_close(found.double(), expected, rtol=0.1, atol=0.1)


@every_scorer
def test_files_and_pickles_score_the_same(make, tmp_path):
    scorer, features = make(), torch.randn(11, 3)
    rs.save_scorer(scorer, tmp_path / "scorer.pt")
    expected = scorer.eval()(features, offsets=RAGGED)
    for again in (rs.load_scorer(tmp_path / "scorer.pt"), pickle.loads(pickle.dumps(scorer))):
        assert torch.equal(again(features, offsets=RAGGED), expected)
    rs.hub.save_pretrained(scorer, tmp_path / "hub")
    assert torch.equal(rs.hub.from_pretrained(tmp_path / "hub")(features, offsets=RAGGED), expected)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("kind", [rs.MLPScorer, rs.ContextScorer, DeepSetScorer])
def test_noise_is_added_in_training_alone_and_has_the_given_deviation(kind):
    scorer, features = kind(3, noise=0.5), torch.zeros(1, 20000, 3)
    seen = []
    inside = scorer.layers[1] if kind is rs.MLPScorer else scorer.augment
    hook = inside.register_forward_hook(lambda _, given, out: seen.append(given[0] if kind is rs.MLPScorer else out))
    assert not torch.equal(scorer(features), scorer(features))
    assert float(seen[0].std()) == pytest.approx(0.5, rel=0.02)
    assert float(seen[0].mean()) == pytest.approx(0, abs=0.02)
    hook.remove()
    scorer.eval()
    assert torch.equal(scorer(features), scorer(features))


def drawn(lists, size):
    """A ragged batch, one list of which is padding alone."""
    real = torch.rand(lists, size) < 0.7
    real[0] = False
    return torch.randn(lists, size, 3), real


soak = pytest.mark.soak
warned = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
ANY_SIZE = {0: Dim.DYNAMIC, 1: Dim.DYNAMIC}
BOTH = {"features": ANY_SIZE, "where": ANY_SIZE}
GIVEN = (torch.zeros(2, 5, 3),), {"where": torch.ones(2, 5, dtype=torch.bool)}


@warned
@pytest.mark.parametrize("make", [SCORERS["attention"], pytest.param(SCORERS["mean and max"], marks=soak)])
def test_torch_export_of_ragged_batches(make):
    scorer = PreparedScorer(make(), rs.Preparation.fit(["standardize"], torch.randn(50, 3).numpy())).eval()
    program = export(scorer, *GIVEN, dynamic_shapes=BOTH).module()
    for sizes in [(3, 7), (2, 2), (4, 20)]:
        features, where = drawn(*sizes)
        torch.testing.assert_close(program(features, where=where), scorer(features, where=where))


@soak  # what docs/guides/serving.md does with one of them
@pytest.mark.needs("onnx", "onnxscript", "onnxruntime")
@warned
@every_scorer
def test_onnx_of_ragged_batches(make, tmp_path):
    import onnxruntime

    scorer = make().eval()
    names = {"input_names": ["features", "where"], "output_names": ["scores"]}
    torch.onnx.export(scorer, GIVEN[0], kwargs=GIVEN[1], dynamic_shapes=BOTH, dynamo=True, verbose=False, **names).save(
        tmp_path / "scorer.onnx"
    )
    session = onnxruntime.InferenceSession(tmp_path / "scorer.onnx")
    for sizes in [(3, 7), (2, 2), (4, 20)]:
        features, where = drawn(*sizes)
        (found,) = session.run(["scores"], {"features": features.numpy(), "where": where.numpy()})
        assert torch.tensor(found).isfinite().all()
        torch.testing.assert_close(torch.tensor(found), scorer(features, where=where).detach(), rtol=1e-4, atol=1e-4)


@soak
@every_scorer
def test_compiled_it_scores_the_same(make):
    scorer, (features, where) = make().eval(), drawn(4, 6)
    compiled = torch.compile(scorer, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(features, where=where), scorer(features, where=where))


@warned
def test_flat_lists_are_not_exported():
    with pytest.raises(Exception, match="exported for padded lists; pass where= instead of offsets="):
        export(rs.ContextScorer(3).eval(), (torch.zeros(6, 3),), {"offsets": torch.tensor([0, 2, 6])})


def test_combinations_pass_the_lists_on_and_say_that_they_need_them():
    preparation = rs.Preparation.fit(["standardize"], torch.randn(9, 3).numpy())
    features = torch.randn(11, 3)
    context = rs.ContextScorer(3).eval()
    for scorer in (
        SumScorer([rs.LinearScorer(3), context]),
        MeanScorer([context, rs.LinearScorer(3)]),
        EnsembleScorer([context, rs.LinearScorer(3)]),
        PreparedScorer(context, preparation),
    ):
        scorer.eval()
        alone = [scorer(features[first:last]) for first, last in [(0, 3), (3, 4), (4, 11)]]
        torch.testing.assert_close(scorer(features, offsets=RAGGED), torch.cat(alone))
        assert scorer.by_list
    assert not MeanScorer([rs.LinearScorer(3)]).by_list
    assert not PreparedScorer(rs.LinearScorer(3), preparation).by_list


def test_slices_would_separate_the_documents_of_a_list():
    scorer, features = rs.ContextScorer(3).eval(), torch.randn(9, 3)
    assert torch.equal(rs.sliced_scores(scorer, features, None), scorer(features))
    with pytest.raises(ValueError, match="ContextScorer compares the documents of a list, which slices would separate"):
        rs.sliced_scores(scorer, features, 4)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (
            lambda: rs.ContextScorer(3, combine="add"),
            ValueError,
            "combine must be one of 'cross', 'gate', 'attention', got 'add'",
        ),
        (lambda: rs.ContextScorer(3, width=1), ValueError, "width must be an integer from 2"),
        (lambda: rs.ContextScorer(3, blocks=0), ValueError, "blocks must be an integer from 1"),
        (lambda: rs.ContextScorer(3, heads=1.5), ValueError, "heads must be an integer from 1"),
        (lambda: rs.ContextScorer(3, noise=-1), ValueError, "noise must be a finite number of at least 0, got -1"),
        (lambda: rs.MLPScorer(3, noise=float("nan")), ValueError, "noise must be a finite number of at least 0"),
        (
            lambda: DeepSetScorer(3, dropout=1),
            ValueError,
            r"dropout must be a finite number of at least 0 and below 1, got 1",
        ),
        (lambda: DeepSetScorer(3, pool="mean"), ValueError, "pool must be a list of 'mean' and 'max', got 'mean'"),
        (lambda: DeepSetScorer(3, pool=()), ValueError, "pool must be a list"),
        (lambda: DeepSetScorer(3)(torch.zeros(3)), ValueError, r"DeepSetScorer compares the documents .*got \(3,\)"),
        (lambda: DeepSetScorer(3)(torch.zeros(2, 4, 3), where=torch.ones(2, 3) > 0), ValueError, r"and where \(2, 3\)"),
        (lambda: DeepSetScorer(3)(torch.zeros(4, 3), where=torch.ones(4)), TypeError, "use where.bool()"),
        (lambda: DeepSetScorer(3)(torch.zeros(2, 4, 3), offsets=torch.tensor([0, 8])), ValueError, "offsets= alone"),
        (
            lambda: DeepSetScorer(3)(torch.zeros(4, 3), offsets=torch.tensor([0, 3])),
            ValueError,
            "end at the number of doc",
        ),
        (lambda: DeepSetScorer(3)(torch.zeros(4, 2)), ValueError, "features must have shape"),
        (lambda: rs.ContextScorer(3)(torch.zeros(4, 3).double()), TypeError, "features are torch.float64"),
    ],
)
def test_what_is_refused(call, error, message):
    with pytest.raises(error, match=message):
        call()
