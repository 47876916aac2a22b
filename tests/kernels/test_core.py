"""The compiled core and Python agree on their interface, and a missing or old core is an error."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from kernel_parts import COMPILER, KERNELS, build

import rankstruct
from rankstruct.kernels import core

LOOPS = [value for value in vars(core).values() if isinstance(value, core.Loop)]


@pytest.mark.parametrize(
    "fields",
    [
        {"high": "float", "low": "float", "min_tpr": "float", "predicted": "bool"},  # another order
        {"low": "float", "high": "float", "min_tpr": "SymInt", "predicted": "bool"},  # another type
        {"low": "float", "high": "Tensor", "min_tpr": "float", "predicted": "bool"},
        {"low": "float", "high": "float", "min_tpr": "float"},
    ],
)
def test_a_core_with_other_fields_says_which(fields):
    told = f"partial_area has the fields low, high, min_tpr, predicted there and {', '.join(fields)} here"
    with pytest.raises(
        ImportError, match=f"of another version than its Python files; install rankstruct again: {told}"
    ):
        core.CoreOptions("partial_area", **fields)


@pytest.mark.parametrize("table", [np.ones(3, np.float32), np.ones(3, int), np.ones(6)[::2]])
def test_a_table_of_another_type_is_refused(table):
    with pytest.raises(TypeError, match="discounts of top_surrogate must be a contiguous array of float64, got "):
        core.top_surrogate.options(table, 3, True, True, True)
    with pytest.raises(TypeError, match="where of rankings must be a contiguous array of bool, got float64"):
        core.rankings.options(None, np.ones(3), *[None] * 5, 1, 3, 1, 1)


def test_every_loop_is_exported_once():
    assert len({loop.name for loop in LOOPS}) == len(LOOPS)
    assert {loop.name for loop in LOOPS} == set(KERNELS)
    assert all(vars(core)[loop.name] is loop for loop in LOOPS)


def run(code, folder=None, **environment):
    environment = {**os.environ, **environment}
    given = {"capture_output": True, "text": True, "check": False, "cwd": folder, "env": environment}
    return subprocess.run([sys.executable, "-c", code], **given)


@pytest.mark.slow
def test_a_core_that_is_missing_says_where_it_comes_from(tmp_path):
    package = Path(rankstruct.__file__).parent
    shutil.copytree(package, tmp_path / "rankstruct", ignore=shutil.ignore_patterns("_core*", "__pycache__"))
    done = run("import rankstruct.kernels", tmp_path, PYTHONPATH=str(tmp_path))
    assert done.returncode == 1
    assert "ImportError: rankstruct's compiled core, _core" in done.stderr
    assert "pip install -e ." in done.stderr


@pytest.mark.slow
@pytest.mark.skipif(COMPILER is None, reason="needs a C++ compiler")
def test_a_core_that_is_old_says_so(tmp_path):
    (tmp_path / "old.cpp").write_text('extern "C" int rankstruct_batch_bytes() { return 96; }\n')
    old = build(tmp_path / "old.cpp", tmp_path / "old.so")
    done = run("import rankstruct.kernels", RANKSTRUCT_CORE=str(old))
    assert done.returncode == 1
    assert "core is of another version than its Python files; install rankstruct again" in done.stderr


@pytest.mark.slow
def test_the_core_that_is_named_is_taken():
    plain = Path(core.__file__).with_name(f"_core{core._SUFFIX}")
    code = (
        "import torch, rankstruct as rs; from rankstruct.kernels import core; print(core.library._name)\n"
        "print(rs.most_violated(torch.tensor([0.2, 0.1]), torch.tensor([1, 0]), 'AP').value.item())"
    )
    done = run(code, RANKSTRUCT_CORE=str(plain))
    name, value = done.stdout.split()
    assert name == str(plain)
    assert float(value) == pytest.approx(0.3)


@pytest.mark.slow
@pytest.mark.skipif(not Path(core.__file__).with_name(f"_core_v3{core._SUFFIX}").is_file(), reason="no other build")
def test_both_builds_have_the_same_numbers():
    """To the last bit: neither fuses multiplications and additions."""
    code = """
import hashlib, torch, rankstruct as rs
digest, generator = hashlib.sha256(), torch.Generator().manual_seed(0)
for size in (3, 40, 700):
    scores = torch.randn(20, size, generator=generator)
    labels = torch.randint(0, 5, (20, size), generator=generator)
    groups = torch.randint(0, 9, (20, size), generator=generator)
    for measure in ("AP", "AP@5", "AUC", "F1", "pAUC(high=0.4)", "R@3"):
        for reference in ("ideal", "predicted"):
            for answer in rs.most_violated(scores, labels > 2, measure, reference=reference):
                digest.update(answer.numpy().tobytes())
    for measure in ("nDCG", "nDCG@7", "RR@3", "mWTA", "diverse_nDCG@5", "diverse_RR@5"):
        for answer in rs.most_violated(scores, labels, measure, diversity_groups=groups):
            digest.update(answer.numpy().tobytes())
    for loss in (rs.RankSVMLoss(), rs.GradedLoss("AUC"), rs.GradedLoss("AP")):
        digest.update(loss(scores, labels).numpy().tobytes())
print(digest.hexdigest())
"""
    folder = Path(core.__file__).parent
    cores = [str(folder / f"{name}{core._SUFFIX}") for name in ("_core", "_core_v3")]
    one, other = (run(code, RANKSTRUCT_CORE=each, OMP_NUM_THREADS="1") for each in cores)
    assert one.stdout == other.stdout != "", one.stderr + other.stderr
