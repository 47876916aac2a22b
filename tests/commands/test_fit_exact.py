"""Exact fits from configs: tables, files, reuse, errors; certificates of runs; the health check."""

import json
import os
import pickle
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from cell_works import replace_result
from programs import run_in
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

import rankstruct as rs
from rankstruct.cli import main as rankstruct
from rankstruct.commands.cells import CellFolders, CellsFailed, locked
from rankstruct.commands.certify import certify_run
from rankstruct.commands.fit import main as train
from rankstruct.commands.fit_exact import fit_exact
from rankstruct.data import Source, digits, synthetic
from rankstruct.diagnostics import certify, fit_path, health_check

CONFIG = """
ranker:
  class_path: rankstruct.LinearRanker
  init_args: {measure: AP, C: [0.1, 1.0, 10.0], prepare: []}
data: {builtin: synthetic}
measures: [AP, RR@10]
"""


def main(arguments, processes=0):
    return rankstruct(["fit-exact", *arguments, "--processes", str(processes)])


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    folder = tmp_path_factory.mktemp("exact")
    (folder / "map.yaml").write_text(CONFIG)
    other = CONFIG.replace("measure: AP", "measure: nDCG@10, feature_map: positional, reference: predicted")
    (folder / "orm.yaml").write_text(other)
    assert main(["--config", str(folder / "map.yaml"), str(folder / "orm.yaml"), "--output", str(folder / "out")]) == 0
    return folder


def test_a_fit_keeps_the_names_of_its_features(tmp_path):
    """`predict` matches by name with the training files gone; another fit of changed data is another request."""
    pytest.importorskip("pyarrow")
    (tmp_path / "data").mkdir()
    rng = np.random.default_rng(0)
    for part in ("train", "vali", "test"):
        X = rng.normal(size=(40, 2)).round(3)
        lines = [f"{at // 5},{int(x[0] > x[1])},{x[0]},{x[1]}" for at, x in enumerate(X.tolist())]
        (tmp_path / "data" / f"{part}.csv").write_text("\n".join(["qid,label,bm25,clicks", *lines]) + "\n")
    (tmp_path / "raw.yaml").write_text(CONFIG.replace("builtin: synthetic", f"path: {tmp_path / 'data'}"))
    fit = ["--config", str(tmp_path / "raw.yaml"), "--output", str(tmp_path / "out")]
    assert main(fit) == 0
    cell = tmp_path / "out" / "raw" / "all"
    assert rs.load_scorer(cell).feature_names == ("bm25", "clicks")
    assert pickle.loads((cell / "ranker.pkl").read_bytes()).feature_names_in_.tolist() == ["bm25", "clicks"]
    turned = [
        [row[at] for at in (0, 1, 3, 2)] for row in (line.split(",") for line in ["qid,label,bm25,clicks", *lines])
    ]
    (tmp_path / "turned.csv").write_text("\n".join(map(",".join, turned)) + "\n")
    kept, scores = shutil.copy(tmp_path / "data" / "test.csv", tmp_path / "kept.csv"), []
    (tmp_path / "data" / "train.csv").write_text((tmp_path / "turned.csv").read_text())
    assert main(fit) == 1
    shutil.rmtree(tmp_path / "data")
    for path in (kept, tmp_path / "turned.csv"):
        assert rankstruct(["predict", "--run", str(cell), "--data.predict_path", str(path)]) == 0
        scores.append((cell / "scores.txt").read_bytes())
    assert scores[0] == scores[1]


def test_features_are_prepared_by_default_as_the_ranker_does(tmp_path):
    (tmp_path / "raw.yaml").write_text(CONFIG.replace(", prepare: []", "").replace("[0.1, 1.0, 10.0]", "1.0"))
    assert main(["--config", str(tmp_path / "raw.yaml"), "--output", str(tmp_path / "out")]) == 0
    train, test = synthetic(seed=0)[0], synthetic(seed=2)[0]
    expected = rs.LinearRanker("AP", C=1.0).fit(train.features, train.labels, train.list_numbers)
    found = pickle.loads((tmp_path / "out" / "raw" / "all" / "ranker.pkl").read_bytes())
    assert found.preparation_.names == expected.preparation_.names == ("append-quantile", "standardize")
    np.testing.assert_allclose(found.predict(test.features), expected.predict(test.features), atol=1e-6)
    given = ["--data.prepare", "[bins:5]", "--output", str(tmp_path / "binned")]  # sparse, and prepared already
    assert main(["--config", str(tmp_path / "raw.yaml"), *given]) == 0
    assert pickle.loads((tmp_path / "binned/raw/all/ranker.pkl").read_bytes()).preparation_.names == ("bins:5",)


def test_reports_every_C(fitted):
    result = json.loads((fitted / "out" / "exact.json").read_text())
    assert result["command"].startswith("rankstruct fit-exact --config ")
    assert result["tables"]["chosen"]["rows"][0][0] == "map"
    found = result["configs"]
    path = found["map"][0]["path"]
    assert [row["C"] for row in path] == [0.1, 1.0, 10.0]
    train_lists = synthetic(seed=0)[0]
    qid = np.repeat(np.arange(train_lists.num_lists), train_lists.lengths)
    for row in path:
        ranker = rs.LinearRanker("AP", C=row["C"], tolerance=1e-5, prepare=()).fit(
            train_lists.features, train_lists.labels, qid
        )
        assert row["objective"] == pytest.approx(ranker.solution_.objective, rel=1.1e-3)
        assert row["gap"] <= 1e-3
        assert row["slack"] == pytest.approx(row["objective"] - row["squared_norm"] / (2 * row["C"]))
        at_zero = ranker.objective(np.zeros(train_lists.num_features), train_lists.features, train_lists.labels, qid)
        assert row["objective_over_zero"] == pytest.approx(row["objective"] / at_zero)
        assert 0 < row["support"] <= row["planes"]
    assert sum(row["chosen"] for row in path) == 1
    best = max(path, key=lambda row: row["validation"]["AP"])
    assert best["chosen"]
    assert found["orm"][0]["path"][0]["gap"] is None


def test_slack_is_the_mean_loss_where_the_regulariser_draws_elsewhere():
    splits = digits(seed=0)
    ranker = rs.LinearRanker(
        "AP", C=0.1, reference="predicted", start="regression", regularize_towards="start", prepare=()
    )
    (row,) = fit_path(ranker, *splits, ["AP"])
    qid = np.repeat(np.arange(splits.train.num_lists), splits.train.lengths)
    risk = ranker.risk(splits.train.features, splits.train.labels, qid)
    assert row["slack"] == pytest.approx(risk(ranker.coef_)[0])
    assert ranker.w0_.any()
    assert row["loss_at_zero"] == pytest.approx(risk(np.zeros(len(ranker.coef_)))[0])
    at_zero = ranker.objective(np.zeros(len(ranker.coef_)), splits.train.features, splits.train.labels, qid)
    assert row["objective_at_zero"] == pytest.approx(at_zero)
    assert at_zero > 10 * row["loss_at_zero"]
    assert row["objective_over_zero"] == pytest.approx(row["objective"] / at_zero)
    assert row["objective_over_zero"] < 1  # the optimum is below every other point
    share = f"{row['objective_over_zero']:.0%}".replace("%", " %")
    lists = splits.train.features, splits.train.labels, qid
    assert health_check(ranker, *lists) == f"learning: the objective is {share} of that at w = 0"


def test_writes_rankers_scorers_boards_and_a_figure(fitted):
    cell = fitted / "out" / "map" / "all"
    chosen = next(row for row in json.loads((cell / "result.json").read_text())["path"] if row["chosen"])
    ranker = pickle.loads((cell / "ranker.pkl").read_bytes())
    assert chosen["C"] == ranker.C_
    test = synthetic(seed=2, weights=synthetic(seed=0)[1])[0]
    scorer = rs.load_scorer(cell / "scorer.pt")
    scores = scorer(torch.tensor(test.features)).detach()
    values = rs.evaluate(scores, torch.tensor(test.labels), ["AP"], offsets=torch.tensor(test.offsets))["AP"]
    assert values.mean().item() == pytest.approx(chosen["test"]["AP"], abs=1e-5)
    tags = EventAccumulator(str(cell)).Reload().Tags()["scalars"]
    assert {"C=1/objective", "C=1/lower_bound", "path/slack", "path/test AP"} <= set(tags)
    assert (fitted / "out" / "exact.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.usefixtures("no_pictures")
def test_finished_fits_are_reused_and_others_refused(fitted, tmp_path, capsys):
    out = shutil.copytree(fitted / "out", tmp_path / "out")
    target = out / "map" / "all" / "result.json"
    result = json.loads(target.read_text())
    result["path"][0]["test"]["AP"] = 0.123456
    replace_result(target.parent, result)
    arguments = ["--config", str(fitted / "map.yaml"), "--output", str(out)]
    assert main(arguments) == 0
    assert "0.1235" in capsys.readouterr().out
    assert main([*arguments, "--ranker.tolerance", "0.5"]) == 1
    assert "holds a run that differs in overrides" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("builtin: synthetic", "builtin: letters"), "data.builtin must be one of 'digits', 'synthetic'"),
        (("measures:", "mesures:"), "mesures"),
        (("LinearRanker", "LineRanker"), "LineRanker"),
        (("synthetic}", "synthetic, prepare: [standard]}"), "unknown preparation step 'standard'"),
    ],
)
def test_a_wrong_config_is_said_in_one_line(change, message, tmp_path, capsys):
    (tmp_path / "c.yaml").write_text(CONFIG.replace(*change))
    assert main(["--config", str(tmp_path / "c.yaml"), "--output", str(tmp_path / "out")]) == 1
    assert message in capsys.readouterr().err


def test_every_exact_config_is_whole():
    from rankstruct.commands.fit_exact import _parse

    configs = sorted((Path(__file__).parents[2] / "configs").glob("exact-*.yaml"))
    assert configs
    for config in configs:
        ranker, _, measures = _parse(config)
        assert isinstance(ranker, rs.LinearRanker)
        assert measures


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*no better than w = 0")
def test_diverse_rankings_from_a_config(tmp_path, capsys):
    config = str(Path(__file__).parents[2] / "configs" / "exact-diverse.yaml")
    ideal = ["--ranker.C", "[0.1, 1.0]", "--ranker.loss.init_args.reference", "ideal"]
    assert main(["--config", config, "--output", str(tmp_path / "out"), *ideal]) == 0
    cell = tmp_path / "out" / "exact-diverse" / "all"
    path = json.loads((cell / "result.json").read_text())["path"]
    assert all(row["gap"] <= 1e-3 for row in path)
    assert all(row["selected"] == row["validation"]["diverse_nDCG@5"] for row in path)
    ranker = pickle.loads((cell / "ranker.pkl").read_bytes())
    test = Source(builtin="synthetic-groups").read().test
    value = ranker.score(test.features, test.labels, test.list_numbers, diversity_groups=test.diversity_groups)
    assert [row["test"]["diverse_nDCG@5"] for row in path if row["chosen"]] == [pytest.approx(value)]
    assert main(["--config", config, "--output", str(tmp_path / "none"), "--data.builtin", "synthetic"]) == 1
    assert (
        "StructuredHingeLoss needs groups, but the data have none; set data.diversity_groups" in capsys.readouterr().err
    )


@pytest.mark.slow
def test_groups_of_an_exact_fit_come_from_comments_and_columns(tmp_path):
    lines = ["0 qid:1 1:0.5 2:7 # host = b.org", "1 qid:1 1:0.1 2:8 # host = a.org", "2 qid:1 1:0.3 2:7 # host = b.org"]
    for part in ("train", "vali", "test"):
        (tmp_path / f"{part}.txt").write_text("\n".join(lines) + "\n")
    text = f"""
ranker:
  class_path: rankstruct.LinearRanker
  init_args: {{measure: diverse_nDCG@2, C: 1.0}}
data: {{path: {tmp_path}, cache: false}}
measures: [diverse_nDCG@2]
"""
    (tmp_path / "c.yaml").write_text(text)
    rows = []
    for number, diversity_groups in enumerate((r"host = (\S+)", "1")):
        options = ["--config", str(tmp_path / "c.yaml"), "--data.diversity_groups", diversity_groups]
        assert main([*options, "--output", str(tmp_path / str(number))]) == 0
        rows.append(json.loads((tmp_path / str(number) / "c" / "all" / "result.json").read_text())["path"][0])
    assert rows[0]["objective"] == rows[1]["objective"]
    assert rows[0]["test"] == rows[1]["test"]


def test_certificate_of_a_run(tmp_path, capsys):
    options = ["--data.builtin", "digits", "--model.scorer", "rankstruct.LinearScorer", "--trainer.max_epochs", "5"]
    more = ["--model.regularization", "0.01", "--trainer.enable_progress_bar", "false", "--output", str(tmp_path)]
    train(["fit", *options, *more])
    assert rankstruct(["certify", "--run", str(run_in(tmp_path))]) == 0
    assert "certified lower bound" in capsys.readouterr().out
    found = json.loads((run_in(tmp_path) / "certificate.json").read_text())
    data = digits(seed=0).train
    qid = np.repeat(np.arange(data.num_lists), data.lengths)
    exact = rs.LinearRanker("AP", C=100.0, tolerance=1e-6, prepare=()).fit(data.features, data.labels, qid)
    assert found["lower_bound"] <= exact.solution_.objective * (1 + 1e-6)
    assert found["lower_bound"] >= exact.solution_.objective * (1 - 2e-3)
    w = rs.load_scorer(run_in(tmp_path)).linear.weight.detach().double().numpy()[0]
    assert found["objective"] == pytest.approx(exact.objective(w, data.features, data.labels, qid))
    assert found["gap"] == pytest.approx(1 - found["lower_bound"] / found["objective"])
    assert found["gap"] > 1e-3
    certificate, _ = certify(exact.to_scorer(), rs.StructuredHingeLoss("AP"), data, 0.01)
    assert certificate.gap <= 1.1e-3
    assert rankstruct(["certify", "--run", str(run_in(tmp_path) / "checkpoints")]) == 1
    assert "config.yaml is missing" in capsys.readouterr().err


def test_certificate_of_a_run_with_groups(tmp_path):
    loss = ["--model.loss", "rankstruct.StructuredHingeLoss", "--model.loss.init_args.measure", "diverse_RR@5"]
    loss += ["--model.loss.init_args.reference", "ideal"]
    options = [
        "--data.builtin",
        "synthetic-groups",
        "--model.scorer",
        "rankstruct.LinearScorer",
        "--output",
        str(tmp_path),
    ]
    more = ["--model.regularization", "0.1", "--model.measures", "[diverse_RR@5]", "--trainer.max_epochs", "2"]
    train(["fit", *options, *loss, *more, "--trainer.enable_progress_bar", "false"])
    with pytest.warns(UserWarning, match="no better than w = 0"):
        found = certify_run(run_in(tmp_path))
    data = Source(builtin="synthetic-groups").read().train
    lists = (data.features, data.labels, data.list_numbers)
    with pytest.warns(UserWarning, match="no better than w = 0"):
        exact = rs.LinearRanker("diverse_RR@5", reference="ideal", C=10.0, tolerance=1e-6).fit(
            *lists, diversity_groups=data.diversity_groups
        )
    assert found.lower_bound <= exact.solution_.objective * (1 + 1e-6)
    assert found.lower_bound >= exact.solution_.objective * (1 - 2e-3)
    assert found.objective >= exact.solution_.lower_bound
    assert "w = 0" in health_check(exact, *lists, diversity_groups=data.diversity_groups)


def test_certificates_that_are_refused():
    data, loss = synthetic()[0], rs.StructuredHingeLoss("AP")
    with pytest.raises(ValueError, match="only a LinearScorer"):
        certify(rs.MLPScorer(data.num_features), loss, data, 1.0)
    with pytest.raises(ValueError, match="needs a convex loss"):
        certify(rs.LinearScorer(data.num_features), rs.SmoothLoss(), data, 1.0)
    with pytest.raises(ValueError, match="regularization must be a finite number above 0"):
        certify(rs.LinearScorer(data.num_features), loss, data, 0.0)


def test_health_check_tells_stuck_from_learning():
    rng = np.random.default_rng(0)
    X, qid = rng.normal(size=(300, 3)), np.repeat(np.arange(10), 30)
    y = rng.integers(0, 3, size=300)  # noise
    with pytest.warns(UserWarning, match="no better than w = 0"):
        stuck = rs.LinearRanker("RR@10", feature_map="first-relevant", reference="ideal", C=10.0).fit(X, y, qid)
    assert health_check(stuck, X, y, qid).startswith("stuck at w = 0")
    y = np.digitize(X[:, 0], [0.5, 1.5])
    learning = rs.LinearRanker("AP", C=10.0).fit(X, y, qid)
    assert health_check(learning, X, y, qid).startswith("learning")


@pytest.mark.usefixtures("no_pictures")
def test_lists_that_do_not_count_are_told(tmp_path, capsys):
    for part in ("train", "vali", "test"):
        lists = ["1 qid:{q} 1:0.{q}\n0 qid:{q} 1:0.3\n", "0 qid:{q} 1:0.5\n0 qid:{q} 1:0.1\n"]
        text = "".join(lists[q % 4 == 0].format(q=q) for q in range(1, 10))
        (tmp_path / f"{part}.txt").write_text(text)
    (tmp_path / "c.yaml").write_text(CONFIG.replace("builtin: synthetic", f"path: {tmp_path}, cache: false"))
    arguments = ["--config", str(tmp_path / "c.yaml"), "--output", str(tmp_path / "out")]
    assert main(arguments) == 0
    out = capsys.readouterr().out
    assert "training lists left out, since all of their labels are equal: 2 of 9" in out
    assert "C corresponds to 1.29 C" in out
    cell = tmp_path / "out" / "c" / "all"
    result = json.loads((cell / "result.json").read_text())
    assert (result["left_out"], result["lists"]) == (2, 9)

    # Fits of an older version did not record all that they depend on.
    record = json.loads((cell / "request.json").read_text())
    (cell / "request.json").write_text(json.dumps(record["request"]))
    assert main(arguments) == 1
    assert "holds a run of an earlier version, which did not record all" in capsys.readouterr().err


@pytest.mark.slow
def test_fits_of_data_that_changed_are_refused(tmp_path, capsys):
    for part in ("train", "vali", "test"):
        (tmp_path / f"{part}.txt").write_text("1 qid:1 1:0.5\n0 qid:1 1:0.3\n")
    (tmp_path / "c.yaml").write_text(CONFIG.replace("builtin: synthetic", f"path: {tmp_path}, cache: false"))
    arguments = ["--config", str(tmp_path / "c.yaml"), "--output", str(tmp_path / "out")]
    assert main(arguments) == 0
    (tmp_path / "test.txt").write_text("0 qid:1 1:0.5\n1 qid:1 1:0.3\n")
    assert main(arguments) == 1
    assert "holds a run that differs in content" in capsys.readouterr().err


@pytest.mark.soak
def test_two_processes_fit_what_one_does(tmp_path):
    """Started by torchrun: convex, rounds of DC programming, and annealing; the same optimum, certificate and choice of C."""
    convex = CONFIG.replace("10.0]", "10.0], tolerance: 1.0e-7")
    texts = {
        "map": convex,
        "orm": CONFIG.replace("measure: AP", "measure: nDCG@10, feature_map: positional, reference: predicted"),
        "smooth": CONFIG.replace(
            "measure: AP", "loss: {class_path: rankstruct.SmoothLoss, init_args: {measure: nDCG@10}}"
        ),
    }
    for name, text in texts.items():
        (tmp_path / f"{name}.yaml").write_text(text)
    given = ["fit-exact", "--config", *(str(tmp_path / f"{name}.yaml") for name in texts), "--output"]
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command = [*launcher, "-m", "rankstruct", *given, str(tmp_path / "two")]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(__file__).parents[2])}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as two:
        one = fit_exact(given[2:-1], folds=None, output=tmp_path / "one", processes=0)
        printed, errors = two.communicate(timeout=240)
    assert two.returncode == 0, errors
    assert printed.count("C selected on validation data") == 1
    found = json.loads((tmp_path / "two" / "exact.json").read_text())["configs"]
    for name in texts:
        (cell,), (wanted,) = found[name], one[name]
        assert (cell["lists"], cell["left_out"]) == (wanted["lists"], wanted["left_out"])
        for row, alone in zip(cell["path"], wanted["path"], strict=True):
            assert row["objective"] == pytest.approx(alone["objective"], rel=1e-6)
            assert row["loss_at_zero"] == pytest.approx(alone["loss_at_zero"], rel=1e-9)
            assert row["chosen"] == alone["chosen"]
            if name == "map":
                assert row["lower_bound"] == pytest.approx(alone["lower_bound"], rel=1e-6)
                assert max(row["gap"], alone["gap"]) <= 1e-7
    ranker = pickle.loads((tmp_path / "two" / "map" / "all" / "ranker.pkl").read_bytes())
    assert not ranker.distributed
    assert ranker.mean_loss(ranker.coef_, *arrays(synthetic(seed=0)[0])) == pytest.approx(
        next(row["slack"] for row in one["map"][0]["path"] if row["chosen"]), rel=1e-6
    )


def arrays(lists):
    return lists.features, lists.labels, lists.list_numbers


def test_fits_that_wait_do_not_see_what_happens_to_config_and_data(tmp_path, monkeypatch):
    lines = ["1 qid:1 1:0.5\n0 qid:1 1:0.3\n", "0 qid:1 1:0.5\n1 qid:1 1:0.3\n"]
    for fold in (1, 2):
        (tmp_path / f"Fold{fold}").mkdir()
        for part in ("train", "vali", "test"):
            (tmp_path / f"Fold{fold}" / f"{part}.txt").write_text(lines[0])
    text, config = CONFIG.replace("builtin: synthetic", f"path: {tmp_path}, cache: false"), tmp_path / "c.yaml"
    config.write_text(text)
    keep = CellFolders.keep

    def keep_and_edit(store, cell, result):
        keep(store, cell, result)
        config.write_text(text.replace("[0.1, 1.0, 10.0]", "[5.0]"))

    monkeypatch.setattr(CellFolders, "keep", keep_and_edit)
    found = fit_exact([config], folds=[1, 2], output=tmp_path / "out", processes=0)
    assert [[row["C"] for row in cell["path"]] for cell in found["c"]] == [[0.1, 1.0, 10.0]] * 2
    test = tmp_path / "Fold2" / "test.txt"
    monkeypatch.setattr("tqdm.tqdm.update", lambda *_: test.write_text(lines[1]))
    with pytest.raises(CellsFailed, match="fold2: its data changed while it ran"):
        fit_exact([config], folds=[1, 2], output=tmp_path / "other", processes=0)


def test_a_folder_that_another_process_writes_to_is_left_alone(tmp_path, capsys):
    pytest.importorskip("fcntl")
    (tmp_path / "c.yaml").write_text(CONFIG)
    with locked(tmp_path / "out"):
        assert main(["--config", str(tmp_path / "c.yaml"), "--output", str(tmp_path / "out")]) == 1
    assert "another process is writing to it" in capsys.readouterr().err


def test_the_runs_of_a_command_over_folds_are_no_run(tmp_path, capsys):
    for cell in ("fold1", "fold2"):
        (tmp_path / "mine" / cell).mkdir(parents=True)
        (tmp_path / "mine" / cell / "request.json").write_text("{}")
    (tmp_path / "mine" / "config.yaml").write_text("model: {}\n")
    for command, folder in (("certify", "mine"), ("test", "mine"), ("certify", ".")):
        assert rankstruct([command, "--run", str(tmp_path / folder)]) == 1
        (line,) = capsys.readouterr().err.splitlines()
        assert (
            f"mine is not a run but has 2, of a command that trains several; give one of them, such as {tmp_path}"
            in line
        )
