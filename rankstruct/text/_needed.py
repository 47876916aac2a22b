"""Imported first, to report in one line if dependencies of the extra are missing."""

from importlib.util import find_spec

_NEEDED = ("transformers", "sentence_transformers", "bm25s", "Stemmer")

if _missing := [name for name in _NEEDED if find_spec(name) is None]:
    raise ImportError(f"rankstruct.text needs {', '.join(_missing)}: pip install 'rankstruct[text]'")
