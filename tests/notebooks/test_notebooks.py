"""Every notebook runs from the first cell to the last."""

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

LONG = ("04-train-for-one-measure-test-on-another",)  # on real data
NOTEBOOKS = sorted((Path(__file__).parents[2] / "notebooks").glob("*.ipynb"))


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
# Jupyter's own event loop and sockets; the notebook runs in another process
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning")
def test_notebook_runs(path, tmp_path, monkeypatch):
    if path.stem in LONG:
        monkeypatch.setenv("RANKSTRUCT_DATA", str(tmp_path))  # so that it takes the built-in data
    monkeypatch.setenv(
        "PYTHONWARNINGS", "ignore:IProgress not found"
    )  # of tqdm, which torchmetrics' imports may ask for bars
    notebook = nbformat.read(path, as_version=4)
    assert any(cell.cell_type == "code" for cell in notebook.cells)
    client = NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}})
    client.execute()  # raises at the first cell that fails
    errors = [o for cell in notebook.cells for o in cell.get("outputs", []) if o.get("name") == "stderr"]
    assert not errors, errors[0]["text"]


def test_there_are_notebooks():
    assert NOTEBOOKS
