"""Scorers on the Hugging Face Hub: a repository with `scorer.pt`, a config to read and a model card.

The names are those of Hugging Face's libraries. They are functions rather than methods of a mixin, so that they take any scorer
that `save_scorer` takes, also of your own class. Only `push_to_hub` and the download need `pip install 'rankstruct[hub]'`.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch import nn

from rankstruct._version import __version__
from rankstruct.files import write_text
from rankstruct.messages import import_extra
from rankstruct.models import load_scorer, save_scorer
from rankstruct.models.scorers import split_preparation

__all__ = ["from_pretrained", "push_to_hub", "save_pretrained"]


def save_pretrained(scorer: nn.Module, folder: str | Path) -> None:
    """Write `scorer.pt`, `config.json` and a model card, `README.md`, to a folder, which is created if needed.

    A model card that is there already is kept.

    Raises:
        TypeError: not a torch module, such as a ranker: save `ranker.to_scorer()`.
        ValueError: the scorer cannot be saved, see `save_scorer`.

    >>> import rankstruct as rs
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_pretrained(rs.LinearScorer(3), folder)
    ...     sorted(path.name for path in Path(folder).iterdir()), type(from_pretrained(folder)).__name__
    (['README.md', 'config.json', 'scorer.pt'], 'LinearScorer')
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    save_scorer(scorer, folder / "scorer.pt")
    inner, preparation = split_preparation(scorer)
    features = preparation.num_features if preparation.names else getattr(inner, "num_features", None)
    config = {"library": "rankstruct", "version": __version__, "scorer": type(inner).__name__}
    given = config | {"num_features": features, "preparation": list(preparation.names)}
    write_text(folder / "config.json", json.dumps(given, indent=2))
    if not (folder / "README.md").exists():
        write_text(folder / "README.md", _card(given))


def push_to_hub(
    scorer: nn.Module,
    repo_id: str,
    *,
    private: bool | None = None,
    token: str | None = None,
    revision: str | None = None,
    commit_message: str = "Upload scorer",
) -> str:
    """Upload what `save_pretrained` writes to a repository of the Hub, which is created if needed; a model card there is kept.

    Args:
        scorer: the scorer.
        repo_id: such as `"user/my-ranker"`.
        private: whether a repository that is created is private; the account's default if None.
        token: of the account; the one that `hf auth login` saved if None.
        revision: the branch to commit to, `main` if None.
        commit_message: the message.

    Returns:
        The address of the commit.

    Raises:
        ImportError: huggingface_hub is not installed.
        TypeError, ValueError: as `save_pretrained`, before anything is uploaded.
    """
    hub = import_extra("huggingface_hub", "hub", "push_to_hub")
    api = hub.HfApi(token=token, library_name="rankstruct", library_version=__version__)
    with tempfile.TemporaryDirectory() as folder:
        save_pretrained(scorer, folder)
        api.create_repo(repo_id, private=private, exist_ok=True)
        described = api.file_exists(repo_id, "README.md", revision=revision)
        done = api.upload_folder(
            repo_id=repo_id,
            folder_path=folder,
            revision=revision,
            commit_message=commit_message,
            ignore_patterns=["README.md"] if described else None,
        )
    return str(done.commit_url)


def from_pretrained(
    name: str | Path, *, trusted: Sequence[str | type] = (), revision: str | None = None, **download: Any
) -> nn.Module:
    """Load a scorer from a folder, or else from a repository of the Hub, as `load_scorer` does: no code runs from the file.

    Args:
        name: a folder of `save_pretrained`, `rankstruct rank` or `rankstruct fit`; or a repository, such as `"user/my-ranker"`.
        trusted: further classes that the file may contain, see `load_scorer`.
        revision: branch, tag or commit of the repository.
        download: options of `huggingface_hub.hf_hub_download`, such as `token`, `cache_dir` or `local_files_only`.

    Raises:
        ImportError: huggingface_hub is not installed, and there is no such folder.
        ValueError: as `load_scorer`.
    """
    if Path(name).exists():
        return load_scorer(name, trusted=trusted)
    hub = import_extra("huggingface_hub", "hub", f"{name} is not a folder here; to download it, from_pretrained")
    path = hub.hf_hub_download(
        str(name), "scorer.pt", revision=revision, library_name="rankstruct", library_version=__version__, **download
    )
    return load_scorer(path, trusted=trusted)


def _card(config: dict[str, Any]) -> str:
    """A model card, to be completed by its author."""
    features = "d" if config["num_features"] is None else config["num_features"]
    prepared = f", preparation included ({', '.join(config['preparation'])})" if config["preparation"] else ""
    return f"""---
library_name: rankstruct
tags: [ranking, learning-to-rank]
---

# A ranker: {config["scorer"]}

A scorer of rankstruct {config["version"]} for {features} raw features per document{prepared}.
Describe here its features in order, its training data and its test measures.

```python
import rankstruct as rs, torch

scorer = rs.hub.from_pretrained("NAME")  # this repository, or a folder; no code runs from the file
scores = scorer(torch.zeros(10, {features}))  # the documents of a query; the highest ranks first
```
"""
