"""A tiny encoder, made once a process."""

import pytest


@pytest.fixture(scope="session")
def collection():
    from rankstruct.text import questions

    return questions()


@pytest.fixture(scope="session")
def encoder(collection, tmp_path_factory):
    from rankstruct.text import tiny_encoder

    return str(tiny_encoder(collection, tmp_path_factory.mktemp("encoder")))
