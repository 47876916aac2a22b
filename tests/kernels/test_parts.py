"""Parts of kernels count no references: so they allocate nothing, and hand arrays to one another alone."""

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import rankstruct

KERNELS = Path(rankstruct.__file__).parent / "kernels"
ALLOCATE = {"empty", "zeros", "ones", "full", "arange", "copy", "empty_like", "zeros_like", "array", "concatenate"}

# Every kind of hinge on lists short and long, of few grades and many: then what was allocated but not freed, and what is freed
# twice would have crashed; and which functions hand arrays back.
CODE = """
import json, sys, numba.types as types, torch
import rankstruct as rs
from combinations import legal_combinations
from numba.core.registry import CPUDispatcher
from numba.core.runtime import rtsys

def left():
    stats = rtsys.get_allocation_stats()
    return stats.mi_alloc - stats.mi_free

def turn(seed):
    generator = torch.Generator().manual_seed(seed)
    for measure, feature_map, reference in legal_combinations((None, 3), ("i^-1/2", "discount")):
        graded = isinstance(feature_map, rs.Positional)
        for lists, size, grades in ((3, 40, 2), (2, 700, 5 if graded else 2), (2, 60, 40 if graded else 2)):
            scores = torch.randn(lists, size, generator=generator, dtype=torch.float64)
            labels = torch.randint(0, grades, (lists, size), generator=generator)
            labels = labels / 10 if grades == 40 else labels
            where = torch.rand(lists, size, generator=generator) < 0.8
            given = {"feature_map": feature_map, "reference": reference, "where": where}
            rs.most_violated(scores, labels, measure, **given)
    scores, labels = torch.randn(3, 50, generator=generator), torch.randint(0, 5, (3, 50), generator=generator)
    for loss in (rs.GradedLoss("AUC"), rs.RankSVMLoss(), rs.LambdaLoss(), rs.StructuredHingeLoss("F1")):
        loss(scores, labels if not isinstance(loss, rs.StructuredHingeLoss) else labels > 1)
    rs.DiverseHingeLoss("nDCG@5")(scores, labels, groups=torch.randint(0, 9, (3, 50), generator=generator))

turn(0)
before = left()
turn(1)
turn(2)
leaked = left() - before

def has_arrays(kind):
    return isinstance(kind, types.Array) or (isinstance(kind, types.BaseTuple) and any(map(has_arrays, kind)))

hand_back = set()
for module in list(sys.modules.values()):
    if getattr(module, "__name__", "").startswith("rankstruct.kernels."):
        for name, its in vars(module).items():
            if isinstance(its, CPUDispatcher) and any(has_arrays(kind.return_type) for kind in its.nopython_signatures):
                hand_back.add(name)
print(json.dumps([leaked, before, sorted(hand_back)]))
"""


def compiled():
    """By name: whether a function is a part, and the names that it calls, of functions and of methods."""
    for file in [*sorted(KERNELS.glob("*_cpu.py")), KERNELS / "sorting.py"]:
        for function in ast.parse(file.read_text()).body:
            if not isinstance(function, ast.FunctionDef) or not function.decorator_list:
                continue
            called = {
                getattr(at.func, "id", getattr(at.func, "attr", ""))
                for at in ast.walk(function)
                if isinstance(at, ast.Call)
            }
            yield function.name, ast.unparse(function.decorator_list[0]) != "compile_kernel", called


@pytest.mark.slow
def test_parts_allocate_nothing_and_no_reference_is_lost(tmp_path):
    environment = {**os.environ, "NUMBA_NRT_STATS": "1", "PYTHONPATH": str(Path(__file__).parents[1])}
    environment["RANKSTRUCT_CACHE"] = str(
        tmp_path
    )  # what is in a cache is not compiled, and then nobody asks what it returns
    environment.pop("NUMBA_CACHE_DIR", None)
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    leaked, before, hand_back = json.loads(done.stdout.splitlines()[-1])
    assert leaked == 0 <= before
    assert {"sort_space", "problem_of", "_begin_sweep"} <= set(hand_back)  # of both kinds
    functions = {name: (part, called) for name, part, called in compiled()}
    assert len(functions) > 90
    for name, (part, called) in functions.items():
        assert not (part and called & ALLOCATE), name
        for other in called & set(hand_back) & set(functions):
            assert functions[other][0] == part, f"{name} takes arrays from {other}, which counts references otherwise"
