"""Every notebook runs from the first cell to the last."""

import json
import sys
from pathlib import Path

import matplotlib.pyplot as plt
import pytest

ON_REAL_DATA = ("04-train-for-one-measure-test-on-another", "14-next-item")
#: What takes long, in place of which as many lines run with less.
SHORTER = {
    "01-quickstart": {"epochs=20": "epochs=3"},
    "02-which-loss": {"epochs=40": "epochs=8"},
    "03-exact-training": {"epochs=60": "epochs=10", "max_seconds=20": "max_seconds=3"},
    "04-train-for-one-measure-test-on-another": {
        "C=[1, 100, 10000]": "C=[0.1, 1]",
        '"C": [10, 1000]': '"C": [0.1, 1]',
        "processes=2": "processes=0",
    },
    "08-text-re-ranker": {"epochs=6": "epochs=2"},
    "09-retrieval-with-a-memory-bank": {"range(3)": "range(2)", "steps=60": "steps=10", "[0, 100, 400]": "[0, 100]"},
    "06-recommender": {
        "epochs=20": "epochs=3",
        "rounds=3, max_iterations=30": "rounds=1, max_iterations=10",
        ")[:40]": ")[:10]",
    },
    "07-matching": {"steps=150": "steps=20", "steps=200": "steps=20"},
    "13-rules-for-a-page": {"LISTS, SIZE = 100, 60": "LISTS, SIZE = 20, 60"},
    "11-clicks": {
        "LISTS, SIZE = 150, 10": "LISTS, SIZE = 60, 10",
        "max_epochs=60": "max_epochs=3",
        "sessions=20_000": "sessions=2000",
        "propensities_by_em(alone, X": "propensities_by_em(max_iterations=2, log=alone, features=X",
        "[100, 300, 1000, 3000, 10_000, 30_000]": "[300, 1000]",
    },
}
ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))


@pytest.mark.slow
@pytest.mark.needs("IPython")
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning", "ignore:.*cannot be shown")
@pytest.mark.filterwarnings("ignore:IProgress not found")  # of tqdm, which torchmetrics' imports may ask for bars
def test_notebook_runs(path, tmp_path, monkeypatch):
    """In this process, which has imported what they use: a kernel each would take longer to start than most notebooks run."""
    from IPython.core.interactiveshell import InteractiveShell

    monkeypatch.setenv("TQDM_DISABLE", "1")  # as one of them does for itself
    if path.stem in ON_REAL_DATA:
        monkeypatch.setenv("RANKSTRUCT_DATA", str(tmp_path))  # so that it takes the built-in data
    sources = ["".join(cell["source"]) for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == "code"]
    assert sources
    (folder := tmp_path / "notebooks").mkdir()
    (tmp_path / "scripts").symlink_to(ROOT / "scripts")  # which are next to the notebooks
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", [str(folder), *sys.path])
    shell = InteractiveShell()
    try:
        for source in sources:
            for long, short in {"%matplotlib inline": "", **SHORTER.get(path.stem, {})}.items():
                source = source.replace(long, short)
            shell.run_cell(source).raise_error()
    finally:
        shell.history_manager.end_session()
        plt.close("all")


def test_there_are_notebooks():
    assert NOTEBOOKS
    texts = {path.stem: path.read_text() for path in NOTEBOOKS}
    assert [
        (name, long) for name, given in SHORTER.items() for long in given if json.dumps(long)[1:-1] not in texts[name]
    ] == []
