"""Every join by name of runs, judgements and texts: silent if all match, a warning with their share, an error if none does."""

import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankstruct.commands.evaluate import Evaluated, compare_systems
from rankstruct.data import DataError, join_run
from rankstruct.text import candidate_lists


def results(queries):
    return {query: {"d": 1.0} for query in queries}


def system(name, queries):
    return Evaluated(name, list(queries), {"AP": np.ones(len(queries))})


def documents_of(names):
    return {"q": dict.fromkeys(names, 1.0)}


#: By join, what it does with names and those of the other source, and whether names that only one of both has are normal.
JOINS = {
    "queries of a run": (lambda ours, theirs: join_run(results(ours), results(theirs)), False),
    "queries of qrels": (lambda ours, theirs: join_run(results(theirs), results(ours)), False),
    "documents of a run": (lambda ours, theirs: join_run(documents_of(ours), documents_of(theirs)), True),
    "queries of one system": (lambda ours, theirs: compare_systems(system("a", ours), system("b", theirs)), False),
    "queries of the other": (lambda ours, theirs: compare_systems(system("b", theirs), system("a", ours)), False),
    "queries of texts": (lambda ours, theirs: candidate_lists(results(ours), results(theirs)), False),
}


@pytest.mark.parametrize("join", JOINS)
@given(
    known=st.sets(st.sampled_from("abcdef"), min_size=0),
    more=st.sets(st.sampled_from(["1", "1.0", " a", "A", "x"]), min_size=0),
)
def test_a_join_tells_what_it_did_not_match(join, known, more):
    call, normal = JOINS[join]
    ours = [*sorted(known), *sorted(more)]
    if not ours:
        return
    theirs = sorted(known) or ["z"]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        if not known:
            with pytest.raises(DataError, match=r"^none of the \d+ .* are they written alike"):
                call(ours, theirs)
            return
        call(ours, theirs)
    told = [str(each.message) for each in caught]
    if normal or not more:
        assert not told
    else:
        share = f"{len(more)} of the {len(ours)} queries of "
        assert len(told) == 1
        assert told[0].startswith(share)
        assert f"({len(more) / len(ours):.1%})" in told[0]
        assert repr(min(more)) in told[0]
