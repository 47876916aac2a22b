"""Every notebook runs from the first cell to the last."""

from pathlib import Path

import pytest

ON_REAL_DATA = ("04-train-for-one-measure-test-on-another",)
#: What takes long, in place of which as many lines run with less.
SHORTER = {
    "02-which-loss": {"epochs=40": "epochs=8"},
    "03-exact-training": {"epochs=60": "epochs=10", "max_seconds=20": "max_seconds=3"},
    "04-train-for-one-measure-test-on-another": {"C=[1, 100, 10000]": "C=[1, 100]"},
    "08-text-re-ranker": {"epochs=6": "epochs=2"},
    "09-retrieval-with-a-memory-bank": {"range(3)": "range(2)"},
    "11-clicks": {
        "max_epochs=60": "max_epochs=10",
        "sessions=20_000": "sessions=5000",
        "1000, 3000, 10_000, 30_000]": "1000]",
    },
}
ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))


@pytest.mark.slow
@pytest.mark.needs("nbclient", "nbformat", "ipykernel")
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
# Jupyter's own event loop and sockets; the notebook runs in another process
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning")
def test_notebook_runs(path, tmp_path, monkeypatch):
    import nbformat
    from nbclient import NotebookClient

    if path.stem in ON_REAL_DATA:
        monkeypatch.setenv("RANKSTRUCT_DATA", str(tmp_path))  # so that it takes the built-in data
    monkeypatch.setenv(
        "PYTHONWARNINGS", "ignore:IProgress not found"
    )  # of tqdm, which torchmetrics' imports may ask for bars
    notebook = nbformat.read(path, as_version=4)
    assert any(cell.cell_type == "code" for cell in notebook.cells)
    for cell in notebook.cells:
        for long, short in SHORTER.get(path.stem, {}).items():
            cell.source = cell.source.replace(long, short)
    folder = tmp_path / "notebooks"
    folder.mkdir()
    (tmp_path / "scripts").symlink_to(ROOT / "scripts")  # which are next to the notebooks
    client = NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(folder)}})
    client.execute()  # raises at the first cell that fails
    errors = [o for cell in notebook.cells for o in cell.get("outputs", []) if o.get("name") == "stderr"]
    assert not errors, errors[0]["text"]


def test_there_are_notebooks():
    assert NOTEBOOKS
    texts = {path.stem: path.read_text() for path in NOTEBOOKS}
    assert [(name, long) for name, given in SHORTER.items() for long in given if long not in texts[name]] == []
