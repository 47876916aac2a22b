"""`rankstruct evaluate`: scores and runs against labels and qrels, tables, files, paired tests, errors."""

import csv
import json
import re

import numpy as np
import pytest

from rankstruct.cli import main
from rankstruct.commands.evaluate import Evaluated, compare_systems

LETOR = "2 qid:1 1:0.1 #docid = a\n0 qid:1 1:0.2 #docid = b\n0 qid:2 1:0.3 #docid = c\n1 qid:2 1:0.4 #docid = d\n"


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "labels.txt").write_text(LETOR)
    (tmp_path / "good").write_text("2.0\n1.0\n1.0\n2.0\n")
    (tmp_path / "bad").write_text("1.0\n2.0\n1.0\n2.0\n")
    (tmp_path / "qrels").write_text("1 0 a 2\n1 0 b 0\n1 0 z 1\n2 0 d 1\n3 0 x 1\n")
    (tmp_path / "run").write_text("1 Q0 a 1 2.0 me\n1 Q0 b 2 1.0 me\n2 Q0 c 1 3.0 me\n2 Q0 d 2 1.0 me\n4 Q0 q 1 1 me\n")
    return tmp_path


def test_scores_against_labels(folder, capsys):
    status = main(
        ["evaluate", str(folder / "bad"), "--labels", str(folder / "labels.txt"), "--measures", "AP", "RR@10"]
    )
    assert status == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[2].split() == ["AP", "0.7500", "2"]
    assert lines[3].split() == ["RR@10", "0.7500", "2"]


def test_scores_against_a_table_whose_columns_are_named(folder, capsys):
    pytest.importorskip("pyarrow")
    table = "session,clicks,target,label,x\n1,2,0,0,a\n1,0,0,1,b\n2,0,0,0,a\n2,1,0,1,a\n"
    (folder / "labels.csv").write_text(table)
    given = ["evaluate", str(folder / "bad"), "--labels", str(folder / "labels.csv"), "--measures", "AP"]
    assert main([*given, "--label", "clicks", "--qid", "session"]) == 0
    assert capsys.readouterr().out.splitlines()[2].split() == ["AP", "0.7500", "2"]
    assert main([*given, "--qid", "session"]) == 1
    assert "columns 'target' and 'label' have usual names of 'label'; name the right one, such as --label target" in (
        capsys.readouterr().err
    )
    (folder / "labels.csv").write_text(table.replace("session", "query_id").replace("target", "y"))
    assert main([*given, "--categorical", "y"]) == 0
    assert capsys.readouterr().out.splitlines()[2].split() == ["AP", "1.0000", "2"]
    assert main(["evaluate", str(folder / "run"), "--qrels", str(folder / "qrels"), "--label", "clicks"]) == 1
    assert capsys.readouterr().err == "rankstruct evaluate: --label has no effect without --labels FILE; remove it\n"


def test_run_against_qrels_counts_what_was_not_retrieved(folder, capsys):
    with pytest.warns(UserWarning, match="queries of the") as told:
        assert main(["evaluate", str(folder / "run"), "--qrels", str(folder / "qrels"), "--measures", "AP"]) == 0
    out = capsys.readouterr().out
    assert "1 of 4 documents are not judged" in out
    for each, start in zip(
        told, ("1 of the 3 queries of the run (33.3%)", "1 of the 3 queries of the qrels"), strict=True
    ):
        assert str(each.message).startswith(start)
    assert out.splitlines()[-1].split() == ["AP", "0.5000", "2"]  # 1/2 in each: one of two retrieved; rank 2 of one


def test_two_systems_side_by_side_with_files(folder, capsys):
    files = [str(folder / "good"), str(folder / "bad")]
    wanted = ["--csv", str(folder / "q.csv"), "--json", str(folder / "r.json"), "--measures", "AP"]
    assert main(["evaluate", *files, "--labels", str(folder / "labels.txt"), *wanted]) == 0
    assert ["AP", "1.0000", "0.7500", "0.2500", "2", "1", "0"] in [
        line.split()[:7] for line in capsys.readouterr().out.splitlines()
    ]
    rows = list(csv.DictReader((folder / "q.csv").read_text().splitlines()))
    assert [(r["system"], r["query"], float(r["AP"])) for r in rows] == [
        (files[0], "1", 1.0),
        (files[0], "2", 1.0),
        (files[1], "1", 0.5),
        (files[1], "2", 1.0),
    ]
    report = json.loads((folder / "r.json").read_text())
    assert report["means"][files[1]] == {"AP": 0.75}
    assert report["queries"][files[1]] == {"AP": 2}
    assert report["comparison"][0]["difference"] == 0.25
    assert report["tables"]["means"]["rows"] == [[name, its["AP"]] for name, its in report["means"].items()]
    assert report["command"].startswith("rankstruct evaluate ")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nothing", "--labels", "labels.txt"], "nothing"),
        (["good", "--labels", "nothing"], "nothing"),
        (["run", "--qrels", "labels.txt"], "labels.txt"),
        (["good", "--labels", "labels.txt", "--measures", "nDCQ@10"], "nDCQ"),
        (["short", "--labels", "labels.txt"], "expected 4 scores, one per document of"),
        (["good", "--labels", "labels.txt", "--convention", "letor", "--ties", "worst"], "letor"),
    ],
)
def test_errors_are_one_line_and_status_1(folder, capsys, arguments, message, monkeypatch):
    monkeypatch.chdir(folder)
    (folder / "short").write_text("1.0\n")
    assert main(["evaluate", *arguments]) == 1
    error = capsys.readouterr().err
    assert message in error
    assert "Traceback" not in error


def test_nothing_to_count_is_null_in_json(folder, capsys):
    (folder / "labels.txt").write_text(LETOR.replace("2 qid:1", "0 qid:1").replace("1 qid:2", "0 qid:2"))
    target = folder / "r.json"
    arguments = [str(folder / "good"), "--labels", str(folder / "labels.txt"), "--measures", "AP", "--empty", "skip"]
    assert main(["evaluate", *arguments, "--json", str(target)]) == 0
    assert json.loads(target.read_text(), parse_constant=pytest.fail)["means"] == {str(folder / "good"): {"AP": None}}
    capsys.readouterr()
    assert main(["evaluate", *arguments, "--csv", "/proc/nowhere/q.csv"]) == 1
    assert "/proc/nowhere" in capsys.readouterr().err


def test_letor_convention_and_empty_policy(folder, capsys):
    (folder / "labels.txt").write_text(LETOR.replace("1 qid:2", "0 qid:2"))
    for policy, mean, queries in (("0", "0.5000", "2"), ("1", "1.0000", "2"), ("skip", "1.0000", "1")):
        arguments = ["good", "--labels", "labels.txt", "--measures", "AP", "--empty", policy]
        arguments[0], arguments[2] = str(folder / "good"), str(folder / "labels.txt")
        assert main(["evaluate", *arguments]) == 0
        assert capsys.readouterr().out.splitlines()[-1].split() == ["AP", mean, queries]


def test_comparison_pairs_queries_by_name():
    first = Evaluated("a", ["x", "y", "z"], {"AP": np.array([0.1, 0.2, 0.9])})
    second = Evaluated("b", ["z", "x", "w"], {"AP": np.array([0.5, 0.4, 1.0])})
    with pytest.warns(UserWarning, match="1 of the 3 queries of . .*: they are left out"):
        (row,) = compare_systems(first, second)
    assert (row["first"], row["second"], row["wins"], row["losses"]) == (0.5, 0.45, 1, 1)
    with pytest.raises(ValueError, match="none of the 3 queries of a is in c"):
        compare_systems(first, Evaluated("c", ["q"], {"AP": np.array([1.0])}))


def test_a_comparison_takes_rounding_for_a_draw():
    first = Evaluated("a", ["x", "y"], {"P@10": np.array([0.9, 0.5])})
    second = Evaluated("b", ["x", "y"], {"P@10": np.array([0.9000000000000001, 0.25])})
    (row,) = compare_systems(first, second)
    assert (row["wins"], row["losses"], row["p"]) == (1, 0, 1.0)


def test_every_count_is_that_of_the_queries_that_entered_the_figure(folder, capsys):
    """Other queries in each run, and of those that both have some for which AUC alone is not defined: all are relevant."""
    (folder / "qrels").write_text("".join(f"{q} 0 {d} {int(d == 'a' or q == 2)}\n" for q in range(1, 6) for d in "ab"))
    first, second = (
        "".join(f"{q} Q0 {d} 1 {s} me\n" for q in which for d, s in (("a", 2), ("b", 1)))
        for which in ((1, 2, 3, 4), (5, 2, 3))
    )
    (folder / "first").write_text(first)
    (folder / "second").write_text(second)
    runs, truth = [str(folder / "first"), str(folder / "second")], ["--qrels", str(folder / "qrels"), "--empty", "skip"]
    with pytest.warns(UserWarning, match="queries of ") as told:
        assert main(["evaluate", *runs, *truth, "--measures", "AP", "AUC", "--json", str(folder / "r.json")]) == 0
    out = capsys.readouterr().out
    counts = {"AP": 2, "AUC": 1}
    for name, count in counts.items():
        (line,) = (line.split() for line in out.splitlines() if line.startswith(f"{name} "))
        assert line[4:7] == [str(count), "0", "0"]
    said = [str(each.message) for each in told][-2:]
    assert said[0].startswith(f"2 of the 4 queries of {runs[0]} (50.0%) are not in {runs[1]}, such as '1'")
    assert said[1].startswith(f"1 of the 3 queries of {runs[1]} (33.3%) are not in {runs[0]}, such as '5'")
    assert not re.search(r"over \d", out)
    report = json.loads((folder / "r.json").read_text())
    assert {row["measure"]: row["queries"] for row in report["comparison"]} == counts
    assert report["queries"] == {runs[0]: {"AP": 4, "AUC": 3}, runs[1]: {"AP": 3, "AUC": 2}}
    for run, (ap, auc) in zip(runs, ((4, 3), (3, 2)), strict=True):
        with pytest.warns(UserWarning, match="queries of the qrels .* are not in the run"):
            assert main(["evaluate", run, *truth, "--measures", "AP", "AUC"]) == 0
        assert [line.split()[-1] for line in capsys.readouterr().out.splitlines()[-2:]] == [str(ap), str(auc)]


def test_labels_of_a_file_with_feature_ids_from_zero(folder, capsys):
    (folder / "labels.txt").write_text(LETOR.replace("1:", "0:"))
    arguments = ["evaluate", str(folder / "good"), "--labels", str(folder / "labels.txt"), "--measures", "AP"]
    assert main(arguments) == 1
    assert "expected feature ids from 1, got '0:0.1'; --zero-based takes ids from 0" in capsys.readouterr().err
    assert main([*arguments, "--zero-based"]) == 0
    assert capsys.readouterr().out.splitlines()[-1].split() == ["AP", "1.0000", "2"]


def test_ids_with_blanks_between_tabs(folder, capsys):
    (folder / "run").write_text("1\tQ0\tNew York\t1\t9.5\ts\n1\tQ0\tRome\t2\t8.5\ts\n")
    (folder / "qrels").write_text("1\t0\tNew York\t1\n1\t0\tArea 51\t0\n")
    arguments = ["evaluate", str(folder / "run"), "--qrels", str(folder / "qrels"), "--measures", "AP", "RR"]
    assert main(arguments) == 0
    assert [line.split()[1] for line in capsys.readouterr().out.splitlines()[-2:]] == ["1.0000", "1.0000"]
    (folder / "run").write_text("1 Q0 New York 1 9.5 s\n1 Q0 Rome 2 8.5 s\n")
    assert main(arguments) == 1
    assert f"{folder / 'run'}:1: expected 6 columns" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--measure", "AP"], "unrecognized arguments: --measure; did you mean --measures?"),
        (["--empty", "0", "--empty", "1"], "--empty is given twice; give it once"),
    ],
)
def test_options_are_written_in_full_and_once(folder, capsys, more, message):
    with pytest.raises(SystemExit):
        main(["evaluate", str(folder / "good"), "--labels", str(folder / "labels.txt"), *more])
    assert message in capsys.readouterr().err


def test_a_run_under_rules(folder, capsys):
    pytest.importorskip("pyarrow")
    (folder / "run").write_text(
        "".join(f"{q} Q0 {d} 1 {s} me\n" for q in (1, 2) for d, s in (("a", 3), ("b", 2), ("c", 1)))
    )
    (folder / "qrels").write_text("1 0 a 1\n1 0 b 0\n1 0 c 1\n2 0 b 1\n2 0 c 1\n")
    (folder / "docs.csv").write_text("docid,seller,new\na,x,0\nb,x,1\nc,,1\n")
    run = ["evaluate", str(folder / "run"), "--qrels", str(folder / "qrels"), "--measures", "P@2", "--constraints"]
    columns = ["--columns", str(folder / "docs.csv")]
    written = ["--csv", str(folder / "q.csv"), "--json", str(folder / "r.json")]
    assert main([*run, "seller <= 1 @ 2", "new=1 >= 1 @ 2", *columns, *written]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["P@2", "0.5000", "2"] in lines
    assert ["P@2", "0.7500", "2"] in lines  # of the second query, b and c would keep the rules too
    assert ["seller", "<=", "1", "@", "2", "2", "0"] in lines
    assert ["new=1", ">=", "1", "@", "2", "0", "0"] in lines
    report = json.loads((folder / "r.json").read_text())
    assert report["violations"][run[1]]["before"] == {"seller <= 1 @ 2": 2, "new=1 >= 1 @ 2": 0}
    assert list(report["means"]) == [run[1], f"{run[1]} under rules"]
    assert len((folder / "q.csv").read_text().splitlines()) == 5
    assert main(["evaluate", run[1], *run[1:], "seller <= 1 @ 2", *columns]) == 0  # against itself
    assert capsys.readouterr().out.count("first") == 3


@pytest.mark.parametrize(
    ("rules", "table", "message"),
    [
        (["seller <= 1 @ 2"], None, "--constraints needs --columns FILE"),
        (["seller < 1"], "docid,seller\na,x\n", "not a rule: 'seller < 1'"),
        (
            ["seller <= 1"],
            "docid,sellers\na,x\n",
            "there is no column 'seller'; there are 'docid, sellers'; did you mean sellers",
        ),
        (["seller=anne <= 1"], "docid,seller\na,ann\n", "no document has seller=anne, as in the rule"),
        (["seller=anne >= 1"], "docid,seller\na,ann\n", "no document has seller=anne, as in the rule"),
        (["docid=b <= 0", "docid=q >= 1"], "docid\na\nb\n", "no document has docid=q"),
        (["seller <= 1"], "docid,seller\na,x\na,y\n", "expected each document once, got 'a' several times"),
        (["seller <= 1"], "docid,seller\nz,x\n", "none of the 4 documents of"),
        (["seller <= 1"], "doc,seller\na,x\n", "there is no column 'docid'"),
        (
            ["seller=x >= 1 @ 1"],
            "docid,seller\na,x\nb,y\nc,y\nd,y\nq,y\n",
            "no ranking of query '2' keeps 'seller=x >= 1 @ 1'",
        ),
    ],
)
@pytest.mark.filterwarnings("ignore:1 of the 3 queries")
def test_rules_that_a_run_cannot_be_judged_by(folder, capsys, rules, table, message):
    pytest.importorskip("pyarrow")
    given = ["evaluate", str(folder / "run"), "--qrels", str(folder / "qrels"), "--constraints", *rules]
    if table is not None:
        (folder / "docs.csv").write_text(table)
        given += ["--columns", str(folder / "docs.csv")]
    assert main(given) == 1
    (said,) = capsys.readouterr().err.splitlines()
    assert message in said
