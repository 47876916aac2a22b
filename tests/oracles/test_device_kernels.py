"""The CUDA kernels in numba's simulator, in a process of their own: the same as enumeration and the CPU loops.

numba looks at its settings when it is loaded, so that the tests of this file are skipped but for the last ones, which run
the others in such a process, or need no simulator.
"""

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from brute_force import random_problem
from combinations import references_of_pairs
from simulator import SETTINGS

import rankstruct as rs
from rankstruct.kernels import dispatch
from rankstruct.oracles.registry import REFERENCES

in_simulator = pytest.mark.skipif("RANKSTRUCT_EXPECTED" not in os.environ, reason="run by test_in_the_simulator")


@pytest.fixture
def on_device(monkeypatch):
    """Until the test ends, tensors of the CPU go where those of CUDA devices go."""
    monkeypatch.setattr(dispatch, "has_loops", lambda device: False)


PLAIN = ("nDCG@5", "nDCG", "P@3", "RR", "RR@2", "mWTA", "DCG@40", "nERU(d=0,half_life=3)")
DIVERSE = ("diverse_nDCG@5", "diverse_RR@3", "diverse_mWTA", "diverse_DCG@40")


def batches():
    """Arguments of `most_violated`: padded and flat, few and many grades, ties, empty lists, frozen references, bfloat16."""
    generator = torch.Generator().manual_seed(0)
    offsets = torch.tensor([0, 1, 1, 9, 30, 32, 40, 66, 72])
    for turn, measure in enumerate((*PLAIN, *DIVERSE)):
        for grades in (2, 12) if turn % 2 else (5,):
            scores = torch.randn(4, 18, generator=generator, dtype=torch.float64) * 10.0 ** (turn % 3)
            scores, labels = scores.round(decimals=1), torch.randint(0, grades, (4, 18), generator=generator) / 2
            where = torch.rand(4, 18, generator=generator) < torch.tensor([[0.9], [0.0], [0.3], [1.0]])
            chosen = torch.randn(4, 18, generator=generator, dtype=torch.float64)
            groups = torch.randint(-3, 9, (4, 18), generator=generator)  # measures that are not diverse take no notice
            scores, labels = torch.where(where, scores, torch.nan), torch.where(where, labels, torch.nan)
            for reference in REFERENCES:
                options = {"measure": measure, "feature_map": "positional", "reference": reference}
                frozen = {"reference_scores": chosen} if reference != "ideal" else {}
                yield {"scores": scores, "labels": labels, "where": where, "groups": groups, **options, **frozen}
                turned = {"labels": labels.mT, "where": where.mT, "groups": groups.mT}
                yield {"scores": scores.bfloat16().mT, **turned, **options}
                flat = {"scores": chosen.flatten(), "labels": labels.nan_to_num().flatten(), "offsets": offsets}
                yield {**flat, "groups": groups.flatten(), **options}


def answers():
    return [rs.most_violated(**batch) for batch in batches()]


def assert_same(found, expected):
    """Of several most violated rankings any will do: compare what they are worth."""
    for batch, here, there in zip(batches(), found, expected, strict=True):
        near = {"rtol": 1e-9, "atol": 1e-9} if here.value.dtype == torch.float64 else {"rtol": 2e-2, "atol": 2e-2}
        torch.testing.assert_close(here.value, there.value, **near)
        assert here.direction.shape == batch["scores"].shape
        if here.value.dtype == torch.float64:
            products = here.direction * batch["scores"].nan_to_num()
            own = lists_of(products, batch.get("offsets")) + here.task_loss
            torch.testing.assert_close(own, there.value, rtol=1e-8, atol=1e-8)


def lists_of(products, offsets):
    if offsets is None:
        return products.sum(-1)
    return torch.stack([each.sum() for each in products.split(offsets.diff().tolist())])


@in_simulator
def test_a_few_hundred_lists_equal_enumeration(on_device):
    rng = np.random.default_rng(0)
    pairs = [each for each in references_of_pairs().items() if isinstance(each[0][1], rs.Positional)]
    for (measure, feature_map, diverse), references in pairs[::3]:
        scores, labels, groups, expected, size = random_problem(rng, measure, feature_map, diverse, 5)
        judged, of = rs.Diverse(measure) if diverse else measure, {"groups": torch.tensor(groups)} if diverse else {}
        given = torch.tensor(scores), torch.tensor(labels)
        for reference in references:
            found = rs.most_violated(*given, judged, feature_map=feature_map, reference=reference, **of)
            own = float(found.task_loss + found.direction @ given[0])
            for value in (found.value.item(), own):
                assert value == pytest.approx(expected[reference], abs=4e-9 * size), (judged.name, feature_map.name)


@in_simulator
@pytest.mark.parametrize("room", ["usual", "none", "no steps"])
def test_all_ways_equal_the_compiled_loops(room, on_device, monkeypatch):
    """Lists without room in the tables, or that take the sweep too many steps, are solved by prices."""
    from rankstruct.kernels import positional_device

    called = []
    prices, sweep = positional_device.by_prices, positional_device.sweep
    monkeypatch.setattr(positional_device, "by_prices", lambda *given: called.append("prices") or prices(*given))
    if room == "none":
        monkeypatch.setattr(positional_device, "_MOST_NUMBERS", 0)
    if room == "no steps":
        monkeypatch.setattr(
            positional_device, "sweep", lambda *given: sweep(*given[:-2], 0, given[-1]) and pytest.fail("no steps")
        )
    assert_same(answers(), torch.load(os.environ["RANKSTRUCT_EXPECTED"], weights_only=False))
    assert called


@in_simulator
def test_what_is_wrong_costs_its_list_alone(on_device):
    scores = torch.tensor(
        [[0.0, 1.0, 2.0], [0.0, torch.nan, 1.0], [torch.inf, 0.0, 1.0], [0.0, 1e308, -1e308]]
    ).double()
    labels = torch.tensor([[0.0, 1, 0]] * 4)
    for measure in ("nDCG", "RR", "DCG@1", "diverse_nDCG@2"):
        groups = torch.tensor([0, 1, 2]).expand(4, -1)
        options = {"measure": measure, "feature_map": "positional"}
        hosts = (lambda each: {"groups": each}) if measure.startswith("diverse") else lambda each: {}
        right = rs.most_violated(scores[0], labels[0], **options, **hosts(groups[0])).value
        found = rs.most_violated(scores, labels, **options, **hosts(groups))
        assert found.value.isnan().tolist() == found.task_loss.isnan().tolist() == [False, True, True, True]
        assert found.value[0] == right
        labelled = torch.tensor([[0.0, 1, 0], [0, torch.nan, 1], [0, torch.inf, 1], [1, 1, 0]])
        chosen = torch.tensor([[0.0, 1, 0]] * 3 + [[0.0, torch.nan, 0]], dtype=torch.float64)
        given = (scores[:1].expand(4, -1), labelled)
        found = rs.most_violated(*given, reference="predicted", reference_scores=chosen, **options, **hosts(groups))
        assert found.value.isnan().tolist() == [False, True, True, True]
        for offsets in ([0, 3, 11], [1, 3, 12], [0, 5, 3, 12]):
            flat = (scores[:1].expand(4, -1).flatten(), labels.flatten())
            of = options | hosts(groups.flatten())
            assert rs.most_violated(*flat, **of, offsets=torch.tensor(offsets)).value.isnan().all()
    negative = rs.most_violated(scores[:1], labels[:1], rs.DCG(gain=lambda y: y - 0.5), feature_map="positional")
    assert negative.value.isnan().all()


@in_simulator
def test_hinges_train_through_the_kernels(on_device):
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(3, 7, generator=generator, requires_grad=True)
    labels = torch.randint(0, 3, (3, 7), generator=generator)
    for measure in ("nDCG@3", "RR", "DCG"):
        loss = rs.structured_hinge_loss(scores, labels, measure, feature_map="positional")
        flat = rs.structured_hinge_loss(
            scores.flatten(), labels.flatten(), measure, feature_map="positional", offsets=torch.tensor([0, 7, 14, 21])
        )
        torch.testing.assert_close(loss, flat)
        torch.testing.assert_close(*(torch.autograd.grad(each, scores)[0] for each in (loss, flat)))
    for shape in ((0, 5), (2, 0), (0,)):
        assert rs.most_violated(torch.zeros(shape), torch.zeros(shape), "nDCG").value.shape == shape[:-1]


@pytest.mark.slow
def test_in_the_simulator(tmp_path):
    torch.save(answers(), tmp_path / "expected")
    environment = {**os.environ, **SETTINGS, "RANKSTRUCT_EXPECTED": str(tmp_path / "expected")}
    environment.pop("PYTEST_XDIST_WORKER", None)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-x",
        "-p",
        "no:cacheprovider",
        "-W",
        "ignore:invalid value encountered:RuntimeWarning",  # infinity times 0, of which compiled loops say nothing
        "-k",
        "not in_the_simulator",
        __file__,
    ]
    done = subprocess.run(
        command, env=environment, cwd=Path(__file__).parents[2], capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout


@pytest.mark.slow
@pytest.mark.skipif(bool(os.environ.get("RANKSTRUCT_EXPECTED")), reason="not in the simulator")
@pytest.mark.parametrize("kernel", ["positional", "diverse"])
def test_the_kernel_compiles_for_a_device(kernel, monkeypatch):
    """To PTX, which takes NVIDIA's compiler but no GPU: `pip install numba-cuda nvidia-cuda-nvcc-cu12 nvidia-cuda-nvrtc-cu12`."""
    pytest.importorskip("numba_cuda", reason="numba's own target cannot compile max()")
    from numba import cuda, typeof, types

    from rankstruct.kernels import diverse_device, positional_device
    from rankstruct.kernels.diverse_cpu import Space
    from rankstruct.kernels.positional_cpu import RankLists

    try:
        cuda.compile_ptx(lambda values: None, (types.float64[::1],), cc=(8, 0))
    except Exception as error:
        pytest.skip(f"no compiler for devices: {error}")
    device = SimpleNamespace(compute_capability=(8, 0))
    monkeypatch.setattr("numba.cuda.dispatcher.get_current_device", lambda: device)
    row, rows, number = types.float64[::1], types.int64[:, ::1], types.int64
    reals, keys = types.float64[:, ::1], types.uint64[:, ::1]
    arrays = [row, row, types.uint64[::1], types.uint8[::1], types.int64[::1], row, row, row]
    lists = types.NamedTuple([*arrays, number, number, types.boolean, types.boolean], RankLists)
    if kernel == "diverse":
        scratch = types.NamedTuple([rows, reals, row, types.UniTuple(keys, 2)], Space)
        function = diverse_device._solve_lists
    else:
        scratch = typeof(positional_device._view(positional_device._allocate(4, 2, 0, torch.device("cpu"))))
        function = positional_device._solve_lists
    text, _ = cuda.compile_ptx(function.py_func, (lists, scratch, number, types.UniTuple(row, 3)), cc=(8, 0))
    assert ".visible .entry" in text
    assert ".extern" not in text
