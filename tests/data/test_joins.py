"""Every join by name of runs, judgements and texts: silent if all match, a warning with their share, an error if none does."""

import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankstruct.commands.evaluate import Evaluated, compare_systems
from rankstruct.data import DataError, join_run, read_lists, read_run
from rankstruct.data.runs import read_scores
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


@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".arrow", ".txt", "run"])
@pytest.mark.parametrize("names", ["integers", "floats", "text", "blanks"])
def test_a_name_is_the_same_in_every_format(names, suffix, tmp_path):
    pa = pytest.importorskip("pyarrow")
    ids = {"integers": [1, 1, 20], "floats": [1.0, 1.0, 20.0], "text": ["1", "1", "20"], "blanks": [" 1", "1 ", "20 "]}[
        names
    ]
    path = tmp_path / f"lists{suffix}"
    if suffix == "run":
        if names == "floats":
            pytest.skip("a TREC run is text")
        path.write_text("".join(f"{q} Q0 d{at} 1 {at}\tmine\n" for at, q in enumerate(ids)))
        assert list(read_run(path)) == ["1", "20"]
        return
    if suffix == ".txt":
        if names == "floats":
            pytest.skip("SVMlight takes the text after qid: as it is")
        path.write_text("".join(f"1 qid:{str(q).strip()} 1:0.5\n" for q in ids))
    elif suffix == ".csv":
        path.write_text("qid,docid,label,x\n" + "".join(f"{q},{q}{at or ''},1,0.5\n" for at, q in enumerate(ids)))
        if names == "floats":
            path.write_text("qid,label,x\n" + "".join(f"{q},1,0.5\n" for q in ids))
    else:
        if names == "blanks":
            pytest.skip("typed files hold names as they are")
        table = pa.table({"qid": ids, "label": [1, 1, 1], "x": [0.5, 0.5, 0.5]})
        from pyarrow import feather, parquet

        parquet.write_table(table, path) if suffix == ".parquet" else feather.write_feather(table, str(path))
    assert read_lists(path, cache=False).qids.tolist() == ["1", "20"]


def test_names_in_a_column_of_floats_are_all_integers(tmp_path):
    rows = "".join(f"{q}.0,1,0.5\n" for q in range(20_000))
    (tmp_path / "lists.csv").write_text("qid,label,x\n" + rows + "7.5,1,0.5\n")
    with pytest.raises(
        DataError, match=r"row 20001: expected an id .a string or an integer. in column 'qid', got 7\.5"
    ):
        read_lists(tmp_path / "lists.csv", cache=False)
    (tmp_path / "lists.csv").write_text("qid,label,x\n" + rows + "q,1,0.5\n")
    with pytest.raises(DataError, match=r"expected a number in column 'qid', got 'q'; the first rows have integers"):
        read_lists(tmp_path / "lists.csv", cache=False)


def test_the_tag_of_a_run_is_no_score(tmp_path):
    (tmp_path / "run.txt").write_text("q1 Q0 d1 1 2.5 7\nq1 Q0 d2 2 1.5 7\n")
    with pytest.raises(DataError, match=r"run.txt:1: expected a score as the last word, got a line of a TREC run"):
        read_scores(tmp_path / "run.txt")
