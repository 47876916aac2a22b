"""Properties of the whole package: light imports, names written once, short functions, one table of commands."""

import ast
import importlib
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import rankstruct as rs
from rankstruct import _lazy

PACKAGE = Path(rs.__file__).parent
SCRIPTS = Path(__file__).parents[1] / "scripts"
PACKAGES = sorted(path.parent for path in PACKAGE.glob("*/__init__.py"))


#: What is done one after another, and what must not have been imported yet.
STEPS = [
    ("import rankstruct, rankstruct.cli", {"torch", "numpy"}),
    ("import rankstruct as rs; rs.AP, rs.data.read_lists", {"pandas", "pyarrow"}),
    (
        "rs.StructuredHingeLoss('AP')",
        {"sklearn", "torchmetrics", "pytorch_lightning", "matplotlib"},
    ),
    ("rs.LinearRanker; rs.load_scorer", {"torchmetrics", "pytorch_lightning", "matplotlib"}),
    ("import rankstruct.recommenders", {"pytorch_lightning", "matplotlib"}),
]


#: Blocks packages in an interpreter, as if they were not installed, and says what is raised.
BLOCKED = """
import sys
sys.modules.update(dict.fromkeys({names}))
def told(call):
    try:
        return call()
    except ValueError as error:
        return str(error)
import rankstruct as rs
"""
TEXT = """
from rankstruct.text import *
collection = questions()
queries = list(collection.queries)[:2]
documents = list(collection.documents)[:2]
print(rs.text.RerankerLoss.__name__, rs.text.TextSource(builtin="questions").depth, len(collection.documents))
print(told(lambda: len(bm25_run(collection, queries, 5))))
print(told(lambda: TermFeatures(collection)(queries, documents).shape))
print(told(lambda: TextSource(builtin="questions", depth=5).read_terms().test.features.shape))
print(told(lambda: load_tokenizer("folder")))
print(told(lambda: CrossEncoderScorer("folder")))
print(told(lambda: TextSource(builtin="questions", depth=5).read().splits.test.num_lists))
"""
ENCODER = "a tokenizer or an encoder of text needs transformers, which is not installed: pip install 'rankstruct[text]'"
WORDS = (
    "splitting texts into words, for BM25 and TermFeatures, needs bm25s, which is not installed: "
    "pip install 'rankstruct[text]'"
)


@pytest.mark.needs("bm25s", "Stemmer", "transformers")
@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (
            {"transformers", "sentence_transformers", "tokenizers"},
            ["RerankerLoss 100 768", "2", "(2, 8)", "(240, 8)", ENCODER, ENCODER, ENCODER],
        ),
        (
            {"transformers", "sentence_transformers", "tokenizers", "bm25s", "Stemmer", "accelerate", "datasets"},
            ["RerankerLoss 100 768", WORDS, WORDS, WORDS, ENCODER, ENCODER, WORDS],
        ),
    ],
)
def test_text_needs_only_what_is_used(names, expected):
    program = BLOCKED.format(names=names) + TEXT
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.stdout.splitlines(), done.stderr) == (expected, "")


def test_nothing_is_imported_that_was_not_asked_for():
    told = "\nprint(*(name for name in sys.modules if '.' not in name))\n"
    program = "import sys\n" + "".join(code + told for code, _ in STEPS)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    for (code, absent), line in zip(STEPS, done.stdout.splitlines(), strict=True):
        assert not absent & set(line.split()), code


def test_public_names_exist():
    assert {"AP", "StructuredHingeLoss", "LinearRanker", "MatrixFactorization", "RankingMetric", "__version__"} <= set(
        dir(rs)
    )
    assert len(rs.__all__) == len(set(rs.__all__)) <= 90
    assert all(hasattr(rs, name) for name in rs.__all__)
    assert (rs.AP, rs.RR, rs.nDCG) == (rs.MAP, rs.MRR, rs.NDCG)  # as other libraries spell them
    assert rs.data.RankingData is importlib.import_module("rankstruct.data").RankingData


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("LinearRankr", "; did you mean LinearRanker?"),
        ("ListNet", "; did you mean ListNetLoss?"),
        ("ApproxNDCG", "; did you mean ApproxNDCGLoss?"),
        ("read_lists", ", but rankstruct.data has"),
        ("RankingModule", ", but rankstruct.training has"),
        ("mWTA", ", but rankstruct.measures has"),
        ("EnsembleScorer", ", but rankstruct.models has"),
        ("FactorizationModule", ", but rankstruct.recommenders.training has"),
        ("ndcg_cut_10", "; measures go by name, such as 'nDCG@10'"),
        ("recip_rank", "; measures go by name, such as 'RR'"),
        ("P", ", but rankstruct.measures has"),
        ("read_list", "; did you mean rankstruct.data.read_lists?"),
        ("quicksort", ""),
        ("_ListNet", ""),
        ("AP ", "; did you mean AP?"),
        ("a b", ""),
        ("AlternatingLeastSquares", "; did you mean rankstruct.Recommender?"),
    ],
)
def test_unknown_names_are_refused_with_what_may_be_meant(name, hint):
    with pytest.raises(AttributeError, match=re.escape(f"module 'rankstruct' has no attribute {name!r}{hint}") + "$"):
        getattr(rs, name)


def test_modules_say_what_may_be_meant_too():
    assert rs.text
    rs.__getattr__("Recommender")  # as at its first use, if others have used it
    for module, name, hint in (
        ("recommenders", "train_test_split", "; did you mean rankstruct.recommenders.hold_out?"),
        ("recommenders", "interaction", "; did you mean interactions?"),
        ("losses", "read_lists", ", but rankstruct.data has"),
        ("data", "_nothing", ""),
        ("text", "preference_scores", ", but rankstruct has"),
    ):
        said = re.escape(f"module 'rankstruct.{module}' has no attribute {name!r}{hint}") + "$"
        with pytest.raises(AttributeError, match=said):
            getattr(getattr(rs, module), name)


def test_nothing_is_imported_to_answer_a_mistyped_name():
    code = """
        import sys, time, rankstruct as rs
        loaded, start = set(sys.modules), time.process_time()
        for name in ("LinearRankr", "ListNet", "read_lists", "FactorizationModule", "ndcg_cut_10", "read_list", "quicksort"):
            try:
                getattr(rs, name)
            except AttributeError:
                pass
        seconds = time.process_time() - start
        print(*sorted({name.partition(".")[0] for name in set(sys.modules) - loaded} - sys.stdlib_module_names))
        print(seconds)
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=True)
    imported, seconds = done.stdout.splitlines()
    assert imported == ""
    assert float(seconds) < 1  # of seven names; each takes some milliseconds


@pytest.mark.parametrize("module", _lazy._MODULES)
def test_the_names_that_a_module_is_said_to_have_are_its_public_names(module):
    assert set(_lazy.listed(module)) == set(_lazy.public_names(importlib.import_module(f"rankstruct.{module}")))


@pytest.mark.parametrize("package", PACKAGES, ids=lambda path: path.name)
def test_a_package_only_imports_what_its_files_export(package):
    for node in ast.parse((package / "__init__.py").read_text()).body[1:]:
        assert isinstance(node, ast.ImportFrom)
        if node.module == f"rankstruct.{package.name}":  # files that are imported for what they register
            assert all((package / f"{name.name}.py").is_file() for name in node.names)
            continue
        assert [name.name for name in node.names] == ["*"]
        assert "__all__" in (PACKAGE.parent / f"{node.module.replace('.', '/')}.py").read_text()


def test_functions_are_short():
    long = []
    for path in (*PACKAGE.rglob("*.py"), *SCRIPTS.glob("*/*.py"), SCRIPTS / "experiment.py", SCRIPTS / "benchmark.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef) and node.end_lineno - node.lineno + 1 >= 60:
                decorators = " ".join(map(ast.unparse, node.decorator_list))
                compiled = "triton.jit" in decorators or "compiled_once" in decorators
                if not compiled:
                    long.append(f"{path.name}: {node.name}")
    assert not long


@pytest.mark.needs("transformers", "sentence_transformers", "bm25s", "Stemmer", "huggingface_hub")
def test_modules_and_names_that_are_mentioned_exist():
    """All dotted names of the package in backticks, in sources, comments and pages."""
    root = PACKAGE.parent
    pages = [root / "README.md", root / "CONTRIBUTING.md", *(root / "configs").glob("*.md")]
    for folder in ("rankstruct", "scripts", "tests", "docs", "notebooks"):
        pages += [path for path in (root / folder).rglob("*.*") if path.suffix in _TEXT and "_build" not in path.parts]
    found = {
        name: path.relative_to(root)
        for path in pages
        for name in re.findall(r"`(?:rankstruct|rs)((?:\.[A-Za-z]\w*)+)", path.read_text(encoding="utf-8"))
    }
    assert len(found) > 50
    assert not {f"{path}: rankstruct{name}" for name, path in found.items() if not _exists(name)}


_TEXT = {".py", ".pyi", ".hpp", ".cpp", ".md", ".ipynb"}


def _exists(name):
    found = rs
    for part in name.split(".")[1:]:
        if not hasattr(found, part):
            try:
                importlib.import_module(f"{found.__name__}.{part}")
            except (ImportError, AttributeError):
                return False
        found = getattr(found, part)
    return True
