"""The examples of the guide to text that need a model run as they are written."""

import re
from pathlib import Path

import pytest

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "text.md"
EXAMPLES = {
    heading: re.search(
        rf"^## {heading}.*?^```\n(.*?)^```", GUIDE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE
    )[1]
    for heading in ("In sentence-transformers", "In Hugging Face's Trainer")
}


@pytest.mark.slow
@pytest.mark.parametrize("heading", EXAMPLES)
@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::UserWarning")
def test_examples_run_as_written(heading, encoder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code = EXAMPLES[heading]
    assert code.startswith("import rankstruct as rs\n")
    assert code.count('"..."')
    names = {}
    exec(code.replace('"..."', repr(encoder)), names)
    assert "loss" in names
