"""The loop over trees against a plain walk down each; whatever layout, dtype, number of threads or mode of torch."""

import copy

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.export import Dim, export
from tree_problems import draw_forest, draw_rows, score_by_walks, scorer_of

import rankstruct as rs
from rankstruct.kernels import trees

MANY = 500  # documents: more than a block


def problem(seed, single=False, documents=MANY, d=5, dtype="float64"):
    rng = np.random.default_rng(seed)
    forest = draw_forest(rng, d, single)
    rows = draw_rows(rng, forest, documents, d, dtype)
    return scorer_of(forest, d, single), torch.tensor(rows), score_by_walks(forest, rows, single)


@settings(deadline=None, max_examples=150)
@given(
    seed=st.integers(0, 2**32),
    single=st.booleans(),
    documents=st.one_of(st.integers(0, 70), st.just(MANY)),
    d=st.integers(1, 6),
    dtype=st.sampled_from(["float32", "float64"]),
)
def test_scores_are_those_of_a_plain_walk(seed, single, documents, d, dtype):
    scorer, rows, expected = problem(seed, single, documents, d, dtype)
    for body in (lambda: trees.score_trees(rows, scorer.buffers(), single), lambda: scorer._sums(rows)):
        found = body()
        assert found.shape == (documents,)
        np.testing.assert_allclose(found.numpy(), expected, rtol=0, atol=1e-14)
    np.testing.assert_array_equal(
        trees.score_trees(rows, scorer.buffers(), single).numpy(), expected
    )  # to the last bit
    assert torch.equal(scorer(rows), torch.tensor(expected).to(rows.dtype))


def test_documents_of_any_layout():
    scorer, rows, expected = problem(1)
    expected = torch.tensor(expected)
    wide = torch.stack([rows, rows * 0], -1)[..., 0]
    for same in (wide, rows.T.contiguous().T, torch.cat([rows, rows], -1)[:, :5]):
        assert not same.is_contiguous()
        assert torch.equal(scorer(same), expected)
    assert torch.equal(scorer(rows[::3]), expected[::3])
    assert torch.equal(scorer(rows.view(5, 20, 5, 5)), expected.view(5, 20, 5))
    assert torch.equal(scorer(rows[0]), expected[0])
    assert scorer(rows[:0].view(0, 7, 5)).shape == (0, 7)
    # torch's dtypes that NumPy lacks or that are no features of a library: as numbers.
    for dtype in (torch.float16, torch.bfloat16, torch.int64, torch.uint8):
        given = (rows.nan_to_num(0, 9, -9).clamp(-9, 9).abs()).to(dtype)
        assert torch.equal(scorer(given), scorer(given.double()).to(dtype))


def test_features_may_need_a_gradient_which_is_none():
    scorer, rows, expected = problem(2)
    found = scorer(rows.requires_grad_())
    assert not found.requires_grad
    assert torch.equal(found, torch.tensor(expected))


def test_threads_share_the_documents(monkeypatch):
    scorer, rows, expected = problem(3)
    calls = []
    plain = trees.core.score_trees
    monkeypatch.setattr(trees, "_WORTH_A_THREAD", 1)
    monkeypatch.setattr(trees.core, "score_trees", lambda *given: calls.append(given[-3:-1]) or plain(*given))
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        assert torch.equal(scorer(rows), torch.tensor(expected))
    finally:
        torch.set_num_threads(before)
    calls.sort()
    assert len(calls) > 1
    assert [first for first, _ in calls] == [0, *(last for _, last in calls[:-1])]
    assert calls[-1][1] == MANY


def test_no_memory_is_an_error(monkeypatch):
    scorer, rows, _ = problem(4)
    monkeypatch.setattr(trees.core, "score_trees", lambda *_: trees.core.OUT_OF_MEMORY)
    with pytest.raises(MemoryError, match="no memory for 64 documents"):
        scorer(rows)


def test_the_operator_in_every_mode():
    scorer, rows, expected = problem(5)
    expected = torch.tensor(expected)
    torch.library.opcheck(torch.ops.rankstruct.score_trees.default, (rows, *scorer.buffers(), False))
    assert torch.equal(torch.vmap(scorer)(rows.view(25, 20, 5)), expected.view(25, 20))


def test_under_torch_compile_the_loop_is_called():
    scorer, rows, expected = problem(6)
    ways = []

    def note(graph, _):
        ways.extend(str(node.target) for node in graph.graph.nodes)
        return graph.forward

    compiled = torch.compile(scorer, backend=note, fullgraph=True, dynamic=True)
    for part in (rows, rows[:9]):
        assert torch.equal(compiled(part), torch.tensor(expected)[: len(part)])
    assert any("score_trees" in way for way in ways)


def test_an_exported_program_has_operators_of_torch_alone():
    scorer, rows, expected = problem(7)
    program = export(scorer, (rows,), dynamic_shapes=({0: Dim.DYNAMIC},))
    targets = [str(node.target) for node in program.graph.nodes if node.op == "call_function"]
    assert targets
    assert not any("rankstruct" in target for target in targets)
    torch.testing.assert_close(program.module()(rows[:9]), torch.tensor(expected[:9]))


def test_trees_in_float32_are_evaluated_in_it():
    scorer, rows, _ = problem(8)
    single = copy.deepcopy(scorer).float()
    assert torch.equal(single(rows), single(rows.float()).double())


@pytest.mark.parametrize(
    ("name", "at", "value"),
    [
        ("branch", (0, 0), -1),
        ("branch", (0, 0), 10**6),
        ("branch", (0, 1), 0),  # a circle
        ("branch", (0, 1), -5),
        ("branch", (0, 1), 10**6),
        ("branch", (-1, 1), 0),
        ("root", 0, -1),
        ("root", 0, 10**9),
        ("feature", 0, -1),
        ("feature", 0, 5),
        ("bounds", 0, -1),
        ("bounds", 1, 10**6),
        ("bounds", -1, 10**6),
        ("threshold", 0, np.nan),
    ],
)
def test_a_file_with_damaged_trees_is_refused(name, at, value, tmp_path):
    scorer, rows, _ = problem(9)
    rs.save_scorer(scorer, tmp_path / "scorer.pt")
    rs.load_scorer(tmp_path / "scorer.pt")(rows)
    scorer.get_buffer(name)[at] = value
    rs.save_scorer(scorer, tmp_path / "scorer.pt")
    with pytest.raises(ValueError, match="cannot be built: the trees are damaged"):
        rs.load_scorer(tmp_path / "scorer.pt")
