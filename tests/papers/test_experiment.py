"""Experiments from configs: cells, kills, reuse, tables, plots, errors."""

import csv
import hashlib
import json
import re
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import matplotlib.colors
import numpy as np
import pytest
import scipy.stats
import yaml

from experiment import main as experiment
from papers.baselines import make_trainer, mean_measure
from papers.plan import Plan, PlanCell, Sets, Vary, read_plan, run_cell
from papers.report import (
    Gathered,
    Table,
    difference_table,
    draw_curves,
    draw_heat,
    interval_table,
    measure_entries,
    measure_table,
    what_came_out,
    win_table,
    write_report,
)
from papers.run import read_results, run_experiment
from rankstruct.commands.cells import CellsFailed
from rankstruct.data import Source
from rankstruct.statistics import bootstrap_interval

CONFIG = """
data: {builtin: synthetic, folds: [1, 2]}
measures: [AP, nDCG@10]
cutoffs: 3
seeds: 3
C: [1.0, 10.0]
baselines: [regression, chance]
trainers:
  SVMmap: {trainer: hinge, measure: AP}
  regression: {trainer: regression, alpha: 1.0}
  chance: {trainer: random}
"""
ROOT = Path(__file__).parents[2]
CONFIGS = ROOT / "configs"
HERE = ["--processes", "0"]
TABLES = ["curves", "differences", "intervals", "measures", "split", "times", "wins"]


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("experiment")
    (folder / "small.yaml").write_text(CONFIG)
    assert experiment([*command(folder, folder / "out")[2:], *HERE]) == 0
    plan = read_plan(folder / "small.yaml")
    return folder, plan, read_results(folder / "out", plan).records


def command(folder, output):
    config = str(folder / "small.yaml")
    return [sys.executable, str(ROOT / "scripts" / "experiment.py"), "--config", config, "--output", str(output)]


def test_runs_every_cell_once_and_keeps_values_by_query(finished):
    folder, plan, records = finished
    lines = (folder / "out" / "results.jsonl").read_text().splitlines()
    assert len(lines) == len(records) == len(plan.cells()) == 2 * (1 + 1 + 3)
    for record in records.values():
        assert set(record["values"]) == {"AP", "nDCG@10", "nDCG@1", "nDCG@2", "nDCG@3"}
        assert {len(values) for values in record["values"].values()} == {len(record["qids"])} == {100}
    assert {len({json.dumps(r["values"]) for k, r in records.items() if k[1] == "chance" and k[3] == 1})} == {3}


def test_a_cell_is_the_trainer_of_its_name_chosen_on_validation(finished):
    _, _, records = finished
    from rankstruct.data import Source

    train, vali, test = Source(builtin="synthetic", seed=2).read()
    qids = [np.repeat(np.arange(part.num_lists), part.lengths) for part in (train, vali, test)]
    ranker = make_trainer("hinge", measure="AP", C=[1.0, 10.0])
    valid = {"X_valid": vali.features, "y_valid": vali.labels, "qid_valid": qids[1]}
    ranker.fit(train.features, train.labels, qids[0], **valid)
    record = records["", "SVMmap", "null", 2, 0]
    assert record["choice"] == {"C": ranker.C_}
    expected = mean_measure(ranker.predict(test.features), test.labels, qids[2], "AP")
    assert np.mean(record["values"]["AP"]) == pytest.approx(expected, abs=5e-3)  # documents are in another order


def test_writes_tables_plots_and_a_page(finished, capsys, request):
    folder, plan, _ = finished
    out = folder / "out"
    assert sorted(p.stem for p in (out / "tables").glob("*.tex")) == TABLES
    head, rule, first, *_ = (out / "tables" / "measures.md").read_text().splitlines()
    assert head.split() == ["|", "trainer", "|", "AP", "|", "nDCG@10", "|"]
    assert set(rule) == {"|", "-"}
    assert first.startswith("| SVMmap")
    assert sorted(p.name for p in (out / "figures").iterdir()) == sorted(
        f"{name}.{suffix}" for name in ("curves", "measures", "paths", "split", "times") for suffix in ("png", "svg")
    )
    page = (out / "report.html").read_text()
    assert page.count("<svg") == page.count("<figcaption>") == 5
    assert "<img" not in page
    names = re.findall(r'\bid="([^"]+)"', page)
    assert len(names) == len(set(names))
    assert set(re.findall(r'href="#([^"]+)"', page)) <= set(names)
    links = re.findall(r'<a href="#([^"]+)"', page)
    assert links == ["measures", "curves", "intervals", "wins", "differences", "times", "paths", "split", "plan"]
    assert page.index('class="found">SVMmap (') < page.index("<nav") < page.index("<svg")
    assert "src=" not in page  # nothing is loaded
    result = json.loads((out / "tables.json").read_text())
    assert result["command"].startswith("python scripts/experiment.py --config ")
    assert [row[0] for row in next(iter(result["tables"].values()))["rows"]]
    assert "chosen by fold" in page
    assert "seeds: 3" in page
    rows = list(csv.DictReader((out / "figures.csv").read_text().splitlines()))
    assert len(rows) == 3 * 2
    # A second run has nothing to do and ends quickly.
    request.getfixturevalue("no_pictures")
    assert experiment(["--config", str(folder / "small.yaml"), "--output", str(out)]) == 0
    assert "SVMmap" in capsys.readouterr().out
    assert len((out / "results.jsonl").read_text().splitlines()) == len(plan.cells())


def contrast(one, other):
    """As WCAG 2 defines it."""

    def luminance(colour):
        linear = np.where(colour <= 0.04045, colour / 12.92, ((colour + 0.055) / 1.055) ** 2.4)
        return linear @ [0.2126, 0.7152, 0.0722]

    low, high = sorted(luminance(np.array(matplotlib.colors.to_rgb(each))) for each in (one, other))
    return (high + 0.05) / (low + 0.05)


def test_every_number_of_the_heat_map_can_be_read_and_chance_has_no_part_in_its_scale(finished):
    _, plan, records = finished
    gathered = Gathered(plan, records, "")
    axis = draw_heat(plan, gathered, measure_entries(plan, gathered, ""), "t").axes[0]
    colours = axis.images[0].get_array()
    assert colours.shape == (3, 2, 4)
    assert len(axis.texts) == 6
    for text in axis.texts:
        column, row = text.get_position()
        assert contrast(text.get_color(), tuple(colours[row, column, :3])) >= 4.5
    means = [[gathered.mean(row, measure).mean for measure in plan.measures] for row in gathered.rows]
    best, worst = np.argmax(means[:2], 0), np.argmin(means[:2], 0)
    assert gathered.rows[2][0] == "chance"
    for column in range(2):
        shades = colours[:, column, 0].astype(float)  # the darker, the less red
        assert shades[best[column]] == shades.min()
        assert shades[worst[column]] == shades.max() == shades[2]
        assert shades.max() - shades.min() > 0.5
    lines = draw_curves(plan, gathered, "t").axes[0].get_lines()
    assert [line.get_label() for line in lines] == ["SVMmap", "regression"]


def test_what_came_out_is_said_first(finished):
    _, plan, records = finished
    names = {"SVMmap": "", "regression": "", "chance": ""}

    def said(baselines, trainers=names, chosen=records, **options):
        options |= {"trainers": {name: plan.trainers[name] for name in trainers}}
        other = replace(plan, baselines=baselines, **options)
        gathered = Gathered(other, chosen, "")
        return what_came_out(other, gathered, measure_entries(other, gathered, ""), "")

    entries = measure_entries(plan, Gathered(plan, records, ""), "")
    mine, other, chance = (next(e for e in entries if (e.trainer, e.measure) == (name, "AP")) for name in names)
    best, second = (mine, other) if mine.mean > other.mean else (other, mine)
    first = f"{best.trainer} ({best.mean:.4f}) is best by test AP"
    sure = "significantly" if mine.p_holm < 0.05 else "not significantly"
    if best is mine:
        assert said(["regression", "chance"]).startswith(
            f"{first}, {sure} better than the best baseline, regression (p"
        )
    assert said(["chance"]).startswith(
        f"{first}, significantly better than the best baseline, chance (p < 0.001, wilcoxon"
    )
    assert said([]) == f"{first}, before {second.trainer} ({second.mean:.4f}); nothing was tested against a baseline."
    assert said(["SVMmap"], ["SVMmap", "chance"]) == (
        f"SVMmap ({mine.mean:.4f}) is best by test AP and a baseline; the best other trainer, chance ({chance.mean:.4f}), is "
        "significantly worse than the best baseline, SVMmap (p < 0.001, wilcoxon test, Holm's correction)."
    )
    assert said([], ["chance"]) == (
        f"chance ({chance.mean:.4f}) is best by test AP; nothing was tested against a baseline."
    )
    assert said([], select="nDCG@10").split(") ")[1].startswith("is best by test nDCG@10")
    assert said([], chosen={}) == "no trainer has all its cells yet."


def test_the_page_of_one_trainer_and_of_a_set_without_cells(finished, tmp_path, request):
    _, plan, records = finished
    one = replace(plan, trainers={"chance": plan.trainers["chance"]}, baselines=[], cutoffs=0)
    write_report(one, records, tmp_path / "one", "one")
    page = (tmp_path / "one" / "report.html").read_text()
    assert page.count("<svg") == 2
    assert "nan" not in page
    request.getfixturevalue("no_pictures")
    two = replace(plan, data=replace(plan.data, builtin=None, path="/nowhere", sets=("A & B", "C")))
    some = {("A & B", *key[1:]): record for key, record in records.items()}
    printed = write_report(two, some, tmp_path / "two", "two")
    page = (tmp_path / "two" / "report.html").read_text()
    assert printed.endswith("C: no trainer has all its cells yet.")
    assert "<h2>A &amp; B</h2>" in page
    assert "<h2>C</h2>" not in page
    assert "C: no trainer has all its cells yet." in page
    assert 'id="A---B-measures"' in page
    write_report(plan, {}, tmp_path / "none", "none")
    assert "no trainer has all its cells yet." in (tmp_path / "none" / "report.html").read_text()


def test_keeps_what_max_margin_trainers_went_through_and_shows_where_the_time_went(finished):
    folder, plan, records = finished
    record = records["", "SVMmap", "null", 1, 0]
    assert [row["C"] for row in record["path"]] == plan.C
    assert [row["squared_norm"] for row in record["path"]] == sorted(row["squared_norm"] for row in record["path"])
    for row in record["path"]:
        assert row["objective"] == pytest.approx(row["slack"] + row["squared_norm"] / (2 * row["C"]))
    assert records["", "regression", "null", 1, 0]["path"] == []
    gathered = Gathered(plan, records, "")
    assert list(gathered.paths) == [("SVMmap", None)]
    seconds = [row["seconds"] for fold in (1, 2) for row in records["", "SVMmap", "null", fold, 0]["path"]]
    split = gathered.split(("SVMmap", None))
    assert sum(split.values()) == pytest.approx(sum(seconds))
    assert min(split.values()) > 0
    (line,) = csv.DictReader((folder / "out" / "tables" / "split.csv").read_text().splitlines())
    assert line["trainer"] == "SVMmap"
    assert sum(int(line[part].rstrip("%")) for part in ("argmax", "QP", "other")) == pytest.approx(100, abs=2)


def test_significance_is_against_the_best_baseline_with_holm(finished):
    _, plan, records = finished
    gathered = Gathered(plan, records, "")
    figures = measure_entries(plan, gathered, "")

    def values(name, measure):
        seeds = range(3 if name == "chance" else 1)
        return np.mean(
            [np.concatenate([_by_qid(records["", name, "null", f, s], measure) for f in (1, 2)]) for s in seeds], 0
        )

    p = []
    for measure in ("AP", "nDCG@10"):
        figure = next(f for f in figures if (f.trainer, f.measure) == ("SVMmap", measure))
        mine, other = values("SVMmap", measure), values("regression", measure)
        assert figure.mean == pytest.approx(mine.mean())
        assert (figure.baseline, figure.wins, figure.losses) == (
            "regression",
            (mine > other).sum(),
            (mine < other).sum(),
        )
        p.append(scipy.stats.wilcoxon(mine - other).pvalue)
        assert figure.p == pytest.approx(p[-1])
        assert figure.low < figure.mean < figure.high
    corrected = [f.p_holm for f in figures if f.trainer == "SVMmap"]
    smaller = int(np.argmin(p))
    assert corrected[smaller] == pytest.approx(min(1, 2 * p[smaller]))
    assert corrected[1 - smaller] == pytest.approx(max(min(1, 2 * p[smaller]), p[1 - smaller]))
    chance = next(f for f in figures if f.trainer == "chance")
    assert (chance.seeds, chance.baseline, chance.mark) == (3, "", "")
    means = [values("chance", "AP").mean()]
    assert chance.mean == pytest.approx(means[0])
    assert chance.deviation > 0
    assert "± " in measure_table(plan, gathered, figures, "").rows[2][1]
    won = win_table(plan, gathered, "").rows
    assert won[0][0] == "SVMmap"
    assert won[2][1].endswith(" **")


def test_intervals_are_bootstrapped_over_queries_and_differences_are_paired_over_all_sets(finished):
    _, plan, records = finished
    gathered = Gathered(plan, records, "")
    entries = measure_entries(plan, gathered, "")
    entry = next(each for each in entries if (each.trainer, each.measure) == ("regression", "AP"))
    shown = {row[0]: row[1] for row in interval_table(plan, gathered, entries, "").rows}
    assert shown["regression"] == f"{entry.mean:.4f} ({entry.low:.4f} to {entry.high:.4f})"
    mine, other = (gathered.units((name, None), "AP") for name in ("SVMmap", "regression"))
    low, high = bootstrap_interval(mine - other, resamples=2000)
    one = difference_table(plan, {"": gathered})
    assert [row[0] for row in one.rows] == ["regression", "chance"]
    assert one.rows[0][1] == f"{(mine - other).mean():+.4f} ({low:+.4f} to {high:+.4f})"
    low, high = bootstrap_interval(np.tile(mine - other, 2), resamples=2000)
    two = difference_table(plan, {"A": gathered, "B": gathered})
    assert two.rows[0][1] == f"{(mine - other).mean():+.4f} ({low:+.4f} to {high:+.4f})"
    assert two.title == "A and B: SVMmap less each other"
    assert two.note.endswith("over queries of A and B together.")
    fewer = {key: record for key, record in records.items() if key[1] != "SVMmap"}
    assert not difference_table(plan, {"A": gathered, "B": Gathered(plan, fewer, "")}).rows


def _by_qid(record, measure):
    values = dict(zip(record["qids"], record["values"][measure], strict=True))
    return np.array([values[qid] for qid in sorted(values)])


@pytest.mark.soak
@pytest.mark.skipif(sys.platform == "win32", reason="SIGKILL")
def test_a_killed_experiment_loses_no_finished_cell_and_ends_with_the_same_tables(finished, tmp_path):
    folder, plan, _ = finished
    output, kept = tmp_path / "out", []
    results = output / "results.jsonl"
    moments = np.random.default_rng(0)
    for number in range(3):
        given = [*command(folder, output), "--processes", str(1 + number % 2)]
        process = subprocess.Popen(given, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        end, enough = time.monotonic() + 120, len(kept) + moments.integers(0, 3)
        while time.monotonic() < end and (not results.is_file() or results.read_bytes().count(b"\n") < enough):
            if process.poll() is not None:  # all cells were there
                break
            time.sleep(0.001)
        time.sleep(moments.uniform(0, 0.3))
        process.kill()
        process.wait()
        lines = results.read_bytes().splitlines(keepends=True)
        whole = [line for line in lines if line.endswith(b"\n")]
        assert whole[: len(kept)] == kept
        kept = whole
        with results.open("ab") as file:  # as if it had been killed inside a write
            file.write(b'{"cell": ["", "SVM')
    assert len(kept) > 0
    assert experiment([*command(folder, output)[2:], *HERE]) == 0
    lines = results.read_bytes().splitlines(keepends=True)
    assert lines[: len(kept)] == kept
    assert sorted(json.loads(line)["cell"] for line in lines) == sorted(list(cell.key) for cell in plan.cells())
    for name in TABLES:
        if name not in ("times", "split"):
            assert (output / "tables" / f"{name}.csv").read_text() == (
                folder / "out" / "tables" / f"{name}.csv"
            ).read_text()
    assert (output / "figures.csv").read_text() == (folder / "out" / "figures.csv").read_text()


@pytest.mark.usefixtures("no_pictures")
@pytest.mark.slow
def test_another_request_is_run_anew_and_the_old_cells_are_kept(tmp_path, capsys):
    config, out = tmp_path / "a.yaml", str(tmp_path / "out")
    config.write_text(
        "{data: {builtin: synthetic, folds: [1]}, measures: [AP], trainers: {r: {trainer: regression, alpha: 1.0}}}"
    )
    given = ["--config", str(config), "--output", out, *HERE]
    assert experiment(given) == 0
    assert "other requests" not in capsys.readouterr().out
    assert experiment([*given, "--measures", "[AP, RR]"]) == 0
    assert "1 finished cells of other requests" in capsys.readouterr().out


def test_two_experiments_do_not_write_to_one_file(tmp_path):
    fcntl = pytest.importorskip("fcntl")
    plan = Plan({"r": {"trainer": "regression"}}, Sets(builtin="synthetic", folds=[1]))
    with (tmp_path / ".lock").open("a") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(ValueError, match="another process is writing"):
            run_experiment(plan, tmp_path)


@pytest.mark.usefixtures("no_pictures")
def test_a_cell_that_fails_is_named_and_the_others_are_kept_and_reported(tmp_path, capsys):
    trainers = {"r": {"trainer": "regression", "alpha": 1.0}, "x": {"trainer": "feature", "feature": 99}}
    plan = Plan(trainers, Sets(builtin="synthetic", folds=[1]))
    with pytest.raises(
        CellsFailed, match=r"1 of 2 cells failed; .*the missing ones:  x null 1 0: .*from 0 to 19, got 99"
    ):
        run_experiment(plan, tmp_path, processes=0)
    assert len(read_results(tmp_path, plan).records) == 1
    config = tmp_path / "a.yaml"
    config.write_text(yaml.safe_dump({"trainers": trainers, "data": {"builtin": "synthetic", "folds": [1]}}))
    assert experiment(["--config", str(config), "--output", str(tmp_path / "out"), *HERE]) == 1
    printed = capsys.readouterr()
    assert "Left out, since cells are missing: x." not in printed.out  # it has none at all
    assert "r " in printed.out
    assert "1 of 2 cells failed" in printed.err
    assert (tmp_path / "out" / "report.html").is_file()


@pytest.mark.usefixtures("no_pictures")
def test_a_trainer_with_missing_cells_is_left_out_and_changes_nothing(finished, tmp_path):
    _, plan, records = finished
    some = {key: record for key, record in records.items() if key[1:4:2] != ("chance", 2)}
    whole, part = (Gathered(plan, each, "") for each in (records, some))
    assert part.incomplete == ["chance"]
    assert part.rows == whole.rows[:-1]
    assert part.queries == whole.queries
    np.testing.assert_array_equal(part.values[("SVMmap", None), "AP"], whole.values[("SVMmap", None), "AP"])
    assert "Left out, since cells are missing: chance." in write_report(plan, some, tmp_path, "t")
    without_reference = {key: record for key, record in records.items() if key[1] != "SVMmap"}
    assert win_table(plan, Gathered(plan, without_reference, ""), "").rows[0][0] == "regression"


@pytest.mark.parametrize("line", [b"garbage", b"5", b'{"cell": null}', b'{"a": 1}', b""])
def test_a_line_that_is_no_cell_is_named(finished, tmp_path, line):
    folder, plan, _ = finished
    lines = (folder / "out" / "results.jsonl").read_bytes().splitlines()
    (tmp_path / "results.jsonl").write_bytes(b"\n".join([lines[0], line, *lines[1:], b""]))
    with pytest.raises(ValueError, match=r"results.jsonl, line 2: no finished cell; delete the line"):
        read_results(tmp_path, plan)


def test_cells_of_data_that_changed_are_run_anew(tmp_path):
    from rankstruct.data import source

    (tmp_path / "train.txt").write_text("1 qid:1 1:0.5\n0 qid:1 1:0.2\n")
    plan = Plan({"r": {"trainer": "regression"}}, Sets(path=str(tmp_path), folds=[1]))
    (cell,) = plan.cells()
    before = plan.request(cell)
    (tmp_path / "train.txt").write_text("0 qid:1 1:0.5\n1 qid:1 1:0.2\n")
    assert plan.request(cell) == before  # read once in a process
    source.content_digest.cache_clear()
    assert plan.request(cell) != before


def test_an_experiment_again_in_one_process_sees_the_data_of_now(tmp_path, monkeypatch):
    lines = ["1 qid:1 1:0.5\n0 qid:1 1:0.2\n", "0 qid:1 1:0.5\n1 qid:1 1:0.2\n"]
    for part in ("train", "vali", "test"):
        (tmp_path / f"{part}.txt").write_text(lines[0])
    plan = Plan({"r": {"trainer": "regression"}}, Sets(path=str(tmp_path), cache=False), measures=["AP"])
    monkeypatch.setattr(Sets, "of", lambda self, name, fold: Source(str(tmp_path), cache=False))
    found = []
    for text in lines:
        (tmp_path / "test.txt").write_text(text)
        (record,) = {
            key[1]: each for key, each in run_experiment(plan, tmp_path / "out", processes=0).records.items()
        }.values()
        found.append(record["values"]["AP"])
    assert found == [[1.0], [0.5]]
    test = tmp_path / "test.txt"
    monkeypatch.setattr("tqdm.tqdm.__enter__", lambda self: (test.write_text(lines[0] * 2), self)[1])
    with pytest.raises(CellsFailed, match="its data changed while it ran"):
        run_experiment(plan, tmp_path / "other", processes=0)


def test_latex_is_escaped():
    table = Table("t", ["a|b", "x"], [["50% & $_{~", "1 ++"]])
    assert r"50\% \& \$\_\{\~{}" in table.latex()
    assert table.markdown().splitlines()[0].split() == ["|", "a\\|b", "|", "x", "|"]


def test_an_option_that_varies_makes_curves(tmp_path):
    plan = Plan(
        {"ridge": {"trainer": "regression"}, "one": {"trainer": "feature", "feature": 0}},
        Sets(builtin="synthetic", folds=[1]),
        measures=["nDCG"],
        vary=Vary("alpha", [0.1, [10.0, 1e6]]),
    )
    assert [cell.value for cell in plan.cells()] == [0.1, (10.0, 1e6), None]
    records = {cell.key: run_cell(plan, cell) for cell in plan.cells()}
    assert "ridge, alpha=0.1" in write_report(plan, records, tmp_path, "ridge")
    assert (tmp_path / "figures" / "varied.png").stat().st_size > 5000
    table = json.loads((tmp_path / "tables.json").read_text())["tables"]["nDCG by alpha"]
    assert table["header"] == ["set", "trainer", "0.1", "(10.0, 1000000.0)"]
    means = [f"{np.mean(records[cell.key]['values']['nDCG']):.4f}" for cell in plan.cells()[:2]]
    assert table["rows"] == [["", "ridge", *means]]
    assert (tmp_path / "tables" / "nDCG-by-alpha.csv").is_file()


def test_fewer_training_lists_and_steps_for_a_trainer_alone():
    entry = {"trainer": "regression", "alpha": 1.0}
    plan = Plan(
        {"few": entry, "bins": {**entry, "prepare": ["bins:5"]}},
        Sets(builtin="synthetic", folds=[1]),
        vary=Vary("lists", [5, 50]),
    )
    few, many, *_ = (run_cell(plan, cell) for cell in plan.cells())
    assert few["documents"][0] < many["documents"][0] / 5
    assert few["removed"] == [0, 0, 0]  # by preparation


def test_what_is_judged_by_validation_lists_sees_no_test_list():
    entry, source = {"trainer": "regression", "alpha": [1.0, 100.0]}, Sets(builtin="synthetic", folds=[1, 2])
    plans = [Plan({"ridge": entry}, source, measures=["AP"], judge=judge) for judge in ("test", "validation")]
    for cell in plans[0].cells():
        parts = source.of("", cell.fold).read_raw()
        usual, early = (run_cell(plan, cell) for plan in plans)
        assert usual["request"] != early["request"]
        assert usual["qids"] == parts.test.qids.tolist()
        assert early["qids"] == parts.vali.qids.tolist()
        train, vali, test = early["documents"]
        assert (train + vali, test) == (parts.train.num_documents, parts.vali.num_documents)
        assert 0.1 < vali / parts.train.num_documents < 0.3  # a fifth of the lists, which differ in size
        assert len(early["values"]["AP"]) == parts.vali.num_lists


def test_fold_means_can_be_paired(finished):
    _, plan, records = finished
    by_fold = Plan(plan.trainers, plan.data, plan.measures, cutoffs=3, seeds=3, C=plan.C, pairs="fold")
    assert Gathered(by_fold, records, "").units(("SVMmap", None), "AP").shape == (2,)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            ("trainer: hinge, measure: AP", "trainer: hinge, measures: AP"),
            "trainers.SVMmap: trainer 'hinge' has no option 'measures'",
        ),
        (("trainer: hinge", "trainer: svm"), "unknown trainer 'svm'"),
        (("baselines: [regression", "baselines: [ridge"), "'ridge' is none of the trainers"),
        (("seeds: 3", "seed: 3"), "seed"),
        (("builtin: synthetic, ", ""), "data.path"),
        (("builtin: synthetic, ", "builtin: synthetic, prepare: [scale], "), "unknown preparation step 'scale'"),
        (("measures: [AP, ", "measures: [QAP, "), "QAP"),
        (("seeds: 3", "test: z"), "expected one of randomization, wilcoxon, t, got z"),
        (("seeds: 3", "judge: everybody"), "judge must be one of 'test', 'validation', got 'everybody'"),
        (("folds: [1, 2]", "folds: [1, 1]"), "data.folds has an entry twice"),
        (("folds: [1, 2]", "folds: []"), "data.folds must have an entry"),
        (("measures: [AP, ", "measures: [ap, AP, "), "measures has an entry twice"),
        (("  SVMmap:", "  $x$:"), "'$x$' is no name"),
        (("  SVMmap:", "  1:"), "1 is no name"),
        (("seeds: 3", "vary: {option: alhpa, values: [1]}"), "no trainer has the option 'alhpa'"),
        (("seeds: 3", "vary: {option: alpha, values: []}"), "one or more different values"),
        (("seeds: 3", "vary: {option: lists, values: [-3]}"), "whole numbers above 0"),
        (("builtin: synthetic, ", "builtin: synthetic, protocol: trials, "), "requires data.path"),
    ],
)
def test_wrong_configs_are_refused_in_one_line(change, message, tmp_path, capsys):
    (tmp_path / "wrong.yaml").write_text(CONFIG.replace(*change))
    assert experiment(["--config", str(tmp_path / "wrong.yaml"), "--output", str(tmp_path / "out")]) == 1
    error = capsys.readouterr().err
    assert message in error
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("config", sorted(CONFIGS.glob("experiment-*.yaml")), ids=lambda path: path.stem)
def test_every_config_is_a_plan_that_runs(config):
    source = {"path": "null", "sets": "[]", "builtin": "synthetic", "folds": "[1]", "protocol": "folds"}
    plan = read_plan(config, [word for key, value in source.items() for word in (f"--data.{key}", value)])
    assert len(config.read_text().splitlines()) <= 30
    cells = {cell.spec["trainer"]: cell for cell in reversed(plan.cells())}
    cheap = next(cell for name, cell in cells.items() if name in ("hinge", "regression", "ranksvm"))
    entry = {**cheap.spec, **({"C": 1.0} if "C" in cheap.spec else {})}
    record = run_cell(plan, PlanCell(cheap.set_name, cheap.name, cheap.value, 1, 0, entry))
    assert all(np.isfinite(values).all() for values in record["values"].values())


def test_tables_are_escaped():
    table = Table("a & b", ["x_1", "50 %"], [["<b>", "0.5 --"]], "note", frozenset({(0, 1)}))
    assert "x\\_1 & 50 \\% \\\\" in " ".join(table.latex().split())
    assert r"\textbf{0.5} $--$" in table.latex()
    assert "<td>&lt;b&gt;</td><td><b>0.5</b> --</td>" in table.html()
    assert "| **0.5** -- |" in table.markdown()
    assert table.csv() == "x_1,50 %\n<b>,0.5 --\n"


def test_a_file_among_the_sets_is_divided_into_folds(tmp_path):
    (tmp_path / "web.txt").write_text("1 qid:1 1:0.5\n0 qid:1 1:0.2\n")
    (tmp_path / "letor").mkdir()
    sets = Sets(path=str(tmp_path), sets=("web.txt", "letor"))
    assert [sets.of(name, 2).protocol for name in sets.sets] == ["cross-validation", "folds"]


def test_the_number_of_parts_is_not_that_of_the_folds_that_run():
    config, path = CONFIGS / "experiment-uci.yaml", ["--data.path", "/nowhere"]
    every, some = read_plan(config, path), read_plan(config, [*path, "--data.folds", "[1, 2, 3]"])
    assert every.data.of("letter.arff", 2).parts == some.data.of("letter.arff", 2).parts == 10
    requests = [{cell.key: plan.request(cell) for cell in plan.cells()} for plan in (every, some)]
    assert requests[1].items() <= requests[0].items()
    assert len(requests[1]) == 3 * len(requests[0]) // 10


def test_what_a_cell_depends_on_keeps_the_digest_of_older_results():
    plan = Plan({"r": {"trainer": "regression"}}, Sets(builtin="synthetic", folds=(1,)), measures=["AP"])
    (cell,) = plan.cells()
    data = {"path": None, "builtin": "synthetic", "protocol": "folds", "sizes": [10, 5, 35], "queries": 50}
    data |= {
        "documents": 100,
        "relevant": None,
        "prepare": [],
        "prepare_train": [],
        "prepare_test": [],
        "labels": "grades",
    }
    wanted = {"spec": cell.spec, "data": data, "measures": ["AP"], "select": None, "cell": ["", 1, 0]}
    assert plan.request(cell) == hashlib.sha256(json.dumps(wanted, sort_keys=True).encode()).hexdigest()[:16]
    svm = Plan({"r": {"trainer": "svmacc"}}, Sets(builtin="synthetic", folds=(1,)), measures=["AP"])
    (cell,) = svm.cells()
    loose = hashlib.sha256(json.dumps(wanted | {"spec": cell.spec}, sort_keys=True).encode()).hexdigest()[:16]
    assert svm.request(cell) != loose  # those were trained to a gap of 1e-3


@pytest.mark.usefixtures("no_pictures")
def test_diverse_measures_of_data_with_groups(tmp_path):
    trainers = {
        "diverse": {"trainer": "hinge", "measure": "diverse_nDCG@5", "C": [0.1, 1.0]},
        "plain": {"trainer": "hinge", "measure": "nDCG@5", "feature_map": "positional", "C": [0.1, 1.0]},
        "ridge": {"trainer": "regression", "alpha": [1.0, 10.0]},
    }
    data = Sets(builtin="synthetic-groups", folds=(1,))
    plan = Plan(trainers, data, measures=["diverse_nDCG@5", "StRecall@5", "AP"], select="diverse_nDCG@5")
    records = {cell.key: run_cell(plan, cell) for cell in plan.cells()}
    means = {key[1]: np.mean(record["values"]["diverse_nDCG@5"]) for key, record in records.items()}
    assert all(0.3 < mean <= 1 for mean in means.values())
    assert "diverse_nDCG@5" in write_report(plan, records, tmp_path, "diverse")


@pytest.mark.usefixtures("no_pictures")
@pytest.mark.slow
def test_what_a_trainer_warns_of_is_a_note_of_the_table(tmp_path):
    trainers = {"SVM": {"trainer": "svmacc", "C": [0.001, 0.01], "tolerance": 0.9}, "ridge": {"trainer": "regression"}}
    plan = Plan(trainers, Sets(builtin="synthetic", folds=(1, 2)), measures=["AP"])
    records = {cell.key: json.loads(json.dumps(run_cell(plan, cell))) for cell in plan.cells()}
    assert [bool(record["remarks"]) for record in records.values()] == [True, True, False, False]
    printed = write_report(plan, records, tmp_path, "t")
    assert "LinearClassifier: the classifier is nearly constant" in printed
    assert "(cells of SVM 2 of 2)" in printed
    for record in records.values():
        del record["remarks"]  # as older versions wrote them
    assert "nearly constant" not in write_report(plan, records, tmp_path, "t")
