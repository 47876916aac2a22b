"""How the pages' Python snippets are run, by pytest: each page in an empty folder; what it registers is forgotten after it."""

import pytest

collect_ignore_glob = ["*.py", "_build/*", "notebooks/*"]


@pytest.fixture(autouse=True)
def as_a_reader(tmp_path, monkeypatch):
    """An empty folder to work in, a seed, and the registries as they were."""
    import torch

    from rankstruct import feature_maps
    from rankstruct.data import dataset
    from rankstruct.measures import base
    from rankstruct.oracles import registry

    torch.manual_seed(0)
    monkeypatch.chdir(tmp_path)
    places = feature_maps._REGISTRY, base._REGISTRY, dataset.FORMATS, registry._ORACLES, registry._DEFAULTS
    before = [dict(each) for each in places]
    yield
    for now, then in zip(places, before, strict=True):
        now.clear()
        now.update(then)
