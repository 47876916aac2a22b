"""Any name in any text format: read as it was written, or refused with its place; never another name or number in silence."""

import random
import re

import numpy as np
import pytest

from rankstruct.commands.evaluate import evaluate_run, evaluate_scores
from rankstruct.data import (
    DataError,
    RankingData,
    read_qrels,
    read_run,
    read_scores,
    read_svmlight,
    write_run,
    write_scores,
)
from rankstruct.recommenders import read_ratings

# Blanks of Unicode, its line ends, marks, what begins remarks, quotes and separators of other formats.
ODD = "\u00a0\u2003\u3000\u202f\u2028\u2029\u0085\x0b\x0c\x1c\x1d\x1e\x1f\ufeff\u200b#:;,|\"'=é漢"
COUNTS = {"run": 6, "qrels": 4, "beir": 3}
MEASURES = ("AP", "nDCG(gain='linear')@10", "RR", "P@5")


def some_name(rng, extra="", used=()):
    """A name of plain and odd letters, not yet used."""
    while True:
        letters = rng.choice(("abc12", "ab1" + ODD, "ab" + ODD + extra, ODD))
        name = "".join(rng.choice(letters) for _ in range(rng.randrange(1, 7))).strip(" ")
        if name and name not in used and name[0] != "\ufeff":
            return name


def some_table(rng, extra, numbers):
    """Numbers of documents by query."""
    queries, documents = {}, [some_name(rng, extra) for _ in range(6)]
    for _ in range(rng.randrange(1, 5)):
        name = some_name(rng, extra, queries)
        queries[name] = {
            each: rng.choice(numbers) for each in dict.fromkeys(rng.choices(documents, k=rng.randrange(1, 7)))
        }
    return queries


def lines_of(kind, table, between, rng):
    """Lines of fields, and a first line for BEIR's qrels."""
    rows = [(query, docid, value) for query, found in table.items() for docid, value in found.items()]
    if kind == "run":
        fields = [
            [q, "Q0", d, str(at), str(value), "my run" if "\t" in between else "run"]
            for at, (q, d, value) in enumerate(rows)
        ]
    elif kind == "qrels":
        fields = [[q, "0", d, str(value)] for q, d, value in rows]
    else:
        fields = [[q, d, f"{value}{rng.choice(('', '.0'))}"] for q, d, value in rows]
    head = [between.join(("query-id", "corpus-id", "score"))] if kind == "beir" else []
    return head, [between.join(each) for each in fields]


def write(path, lines, rng=None):
    end = "\n" if rng is None else rng.choice(("\n", "\r\n", "\r"))
    mark = "" if rng is None else rng.choice(("", "\ufeff"))
    path.write_bytes((mark + end.join(lines) + end).encode())


def damaged(line, between, count, rng):
    """A line with a field more or less."""
    fields = re.split("\t" if "\t" in between else "[ \t]+", line)
    assert len(fields) == count
    at = rng.randrange(count)
    return between.join(
        [*fields[:at], *rng.choice(([], [fields[at], "more"], ["more", fields[at]], [""])), *fields[at + 1 :]]
    )


def check_tables(rng, folder):
    """Runs and both kinds of qrels, with tabs or blanks; a damaged line of each."""
    between = rng.choice(("\t", " ", " \t", "  "))
    extra = " " if between == "\t" else ""
    for kind, reader in (("run", read_run), ("qrels", read_qrels), ("beir", read_qrels)):
        table = some_table(rng, extra, [-1, 0, 1, 2, 3] if kind != "run" else [0.5, -1.0, 2.25, 1e-3])
        head, body = lines_of(kind, table, between if kind != "beir" or between == "\t" else " ", rng)
        path = folder / kind
        write(path, head + body, rng)
        assert reader(path) == table
        at = rng.randrange(len(body))
        if at == 0 and not head:  # it might tell another separator
            continue
        wrong = damaged(body[at], between if not head or between == "\t" else " ", COUNTS[kind], rng)
        if re.match(r"[ \t]*#+(?:[ \t]|\Z)", wrong):  # a comment
            continue
        write(path, [*head, *body[:at], wrong, *body[at + 1 :]])
        with pytest.raises(DataError, match=f"{kind}:{len(head) + at + 1}: expected {COUNTS[kind]} columns"):
            reader(path)


def check_written_run(rng, folder):
    """A run that is written is the run that is read."""
    table = some_table(rng, rng.choice(("", " ")), [0.5, -1.0, 2.25, 1e-3])
    qids = [query for query, found in table.items() for _ in found]
    docids = [docid for found in table.values() for docid in found]
    values = np.array([value for found in table.values() for value in found.values()])
    data = RankingData.from_arrays(np.zeros((len(qids), 1)), np.zeros(len(qids)), qids, docids=docids)
    write_run(folder / "written", data, values, tag=rng.choice(("t", "my run")))
    assert read_run(folder / "written") == table
    write_scores(folder / "scores", values)
    assert read_scores(folder / "scores").tolist() == values.tolist()


def check_lists(rng, folder):
    """SVMlight: names of queries and documents; a space of Unicode at the end of a query's name is refused."""
    names = []
    for _ in range(rng.randrange(1, 4)):
        names.append(some_name(rng, used=names).replace("#", "x"))
    names = list(dict.fromkeys(names))
    docids = [some_name(rng).replace("docid", "") for _ in names]
    lines = [
        f"{at} {rng.choice(('qid', 'QID'))}:{n} 1:{at}.5 2:1 # docid = {d}"
        for at, (n, d) in enumerate(zip(names, docids, strict=True))
    ]
    write(folder / "lists", lines, rng)
    slips = [at for at, name in enumerate(names, 1) if name != name.strip() or re.search(r"\s\d+:", name)]
    if slips:
        with pytest.raises(DataError, match=rf"lists:{slips[0]}: expected blanks or tabs around the qid, got U\+"):
            read_svmlight(folder / "lists", cache=False)
        return
    data = read_svmlight(folder / "lists", cache=False)
    assert (data.qids.tolist(), data.docids.tolist(), data.labels.tolist()) == (names, docids, [*range(len(names))])
    assert data.features[:, 0].tolist() == [at + 0.5 for at in range(len(names))]
    write_scores(folder / "scores", data.features[:, 0])
    assert evaluate_scores(folder / "scores", folder / "lists", ["AP"]).qids == names


def check_ratings(rng, folder):
    """Ratings, by each separator."""
    form, between, extra = rng.choice(
        (("text", "\t", " "), ("text", " ", ""), ("movielens1m", "::", " \t"), ("movielens100k", "\t", " "))
    )
    table = some_table(rng, extra, [1, 2, 3, 4, 5])
    if between == "::" and any(":" in name for found in (dict.fromkeys(table, 0), *table.values()) for name in found):
        return
    rows = [(user, item, value) for user, found in table.items() for item, value in found.items()]
    if any(name != name.strip(" \t") or '"' in name for row in rows for name in row[:2]):  # quotes are no part of names
        return
    write(folder / "ratings", [between.join((user, item, str(value), "9")) for user, item, value in rows], rng)
    found = read_ratings(folder / "ratings", form, scale="stars")
    users, items = found.user_names.tolist(), found.item_names.tolist()
    got = {
        (users[u], items[i]): r
        for u, i, r in zip(found.user.tolist(), found.item.tolist(), found.rating.tolist(), strict=True)
    }
    assert got == {(user, item): value for user, item, value in rows}


CHECKS = (check_tables, check_written_run, check_lists, check_ratings)


@pytest.mark.parametrize("check", CHECKS)
def test_names_are_read_as_they_were_written(check, tmp_path):
    for seed in range(50):
        check(random.Random(f"{check.__name__} {seed}"), tmp_path)


@pytest.mark.soak
@pytest.mark.parametrize("check", CHECKS)
def test_names_of_ten_thousand_files(check, tmp_path):
    for seed in range(50, 10_000 // len(CHECKS) + 50):
        check(random.Random(f"{check.__name__} {seed}"), tmp_path)


def check_values(rng, folder):
    """Measures of a run and qrels are those of ir_measures, where it reads the names that were written."""
    ir_measures = pytest.importorskip("ir_measures", reason="what values are compared with")
    numbers = {"run": [0.5, -1.0, 2.25, 0.001, 0.1], "qrels": [-1, 0, 0, 1, 2, 3]}
    plain = rng.random() < 0.7
    documents = [f"d{i}" for i in range(12)] if plain else [some_name(rng) for _ in range(12)]
    queries = ["1", "2", "q3"] if plain else list(dict.fromkeys(some_name(rng) for _ in range(3)))
    between = rng.choice(("\t", " ", "  "))
    tables = {}
    for kind, values in numbers.items():
        tables[kind] = {
            query: {
                docid: rng.choice(values) for docid in dict.fromkeys(rng.choices(documents, k=rng.randrange(1, 14)))
            }
            for query in queries
        }
        write(folder / kind, lines_of(kind, tables[kind], " " if kind == "run" else between, rng)[1])
    found = evaluate_run(folder / "run", folder / "qrels", MEASURES, ties="docid")
    assert (read_run(folder / "run"), read_qrels(folder / "qrels")) == (tables["run"], tables["qrels"])
    theirs = {"run": {}, "qrels": {}}
    try:
        run, qrels = (
            list(ir_measures.read_trec_run(str(folder / "run"))),
            list(ir_measures.read_trec_qrels(str(folder / "qrels"))),
        )
    except ValueError:
        return 0
    for each in run:
        theirs["run"].setdefault(each.query_id, {})[each.doc_id] = each.score
    for each in qrels:
        theirs["qrels"].setdefault(each.query_id, {})[each.doc_id] = each.relevance
    if theirs != tables:  # it strips spaces of Unicode
        return 0
    names = [ir_measures.parse_measure(name) for name in ("AP", "nDCG@10", "RR", "P@5")]
    values = {(each.query_id, str(each.measure)): each.value for each in ir_measures.iter_calc(names, qrels, run)}
    for ours, name in zip(found.values.values(), map(str, names), strict=True):
        assert ours.tolist() == pytest.approx([values[query, name] for query in found.qids], abs=1e-9)
    return len(values)


def test_values_are_those_of_ir_measures(tmp_path):
    assert sum(check_values(random.Random(seed), tmp_path) for seed in range(25)) > 100


@pytest.mark.soak
def test_values_of_two_thousand_runs_are_those_of_ir_measures(tmp_path):
    assert sum(check_values(random.Random(seed), tmp_path) for seed in range(25, 2025)) > 10_000
