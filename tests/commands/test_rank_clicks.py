"""`rankstruct rank --clicks`: from a log to a tested ranker, what its card says, what is refused."""

import json
import re

import numpy as np
import pandas as pd
import pytest
import torch

import rankstruct as rs
from papers.click_models import PositionModel, simulate_clicks
from rankstruct.cli import main as rankstruct
from rankstruct.clicks import ClickLog, harvest_propensities

pytest.importorskip("pyarrow")

LISTS, SIZE, WIDTH = 40, 8, 3
QUICK = ["--time-budget", "0"]
FEATURES = [f"f{i}" for i in range(WIDTH)]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """A log with features, in random order, one without, the lists of its documents, and judged test lists."""
    folder, rng = tmp_path_factory.mktemp("clicks"), np.random.default_rng(0)
    X = rng.normal(size=(LISTS * SIZE, WIDTH)).round(3)
    y, production = (X[:, 0] > 0.7).astype(int), X[:, 1] + 0.5 * X[:, 0]
    rankers = np.stack([production, production + rng.normal(size=len(X))])
    log = simulate_clicks(PositionModel(), rankers, y, np.arange(0, len(X) + 1, SIZE), sessions=1500, cutoff=6)
    order = rng.permutation(len(log))
    names = np.array([f"d{i}" for i in range(len(X))])
    table = pd.DataFrame({name: getattr(log, name)[order] for name in ("session", "query", "position", "click")})
    table["document"] = names[log.document[order]]
    table["click"] = table["click"].astype(int)
    table.to_csv(folder / "bare.csv", index=False)
    full = pd.concat([table, pd.DataFrame(X[log.document[order]], columns=FEATURES)], axis=1)
    full.to_csv(folder / "log.csv", index=False)
    full.to_parquet(folder / "log.parquet")
    lists = pd.DataFrame(X, columns=FEATURES).assign(
        qid=np.repeat(np.arange(LISTS), SIZE), docid=names, label=np.zeros(len(X), int)
    )
    lists.to_csv(folder / "lists.csv", index=False)
    test = rng.normal(size=(LISTS * SIZE, WIDTH)).round(3)
    judged = pd.DataFrame(test, columns=FEATURES).assign(
        qid=np.repeat(np.arange(LISTS), SIZE), label=(test[:, 0] > 0.7) * 1
    )
    judged[["qid", "label", *reversed(FEATURES)]].to_csv(folder / "test.csv", index=False)  # features by name
    return folder


@pytest.fixture(scope="module")
def finished(data):
    output = data / "out"
    command = ["rank", "--clicks", str(data / "log.csv"), "--test", str(data / "test.csv"), *QUICK]
    assert rankstruct([*command, "--clip", "0.2", "--output", str(output)]) == 0
    return output


def test_the_folder_has_a_tested_ranker(data, finished):
    result = json.loads((finished / "result.json").read_text())
    assert result["measure"] == "DCG@10"
    assert result["feature_names"] == FEATURES
    assert result["test"]["nDCG@10"]["mean"] > 0.93  # the production ranker: 0.75
    test = rs.data.read_lists(data / "test.csv", features=FEATURES)
    scores = rs.load_scorer(finished)(torch.tensor(test.features), offsets=torch.tensor(test.offsets))
    found = rs.evaluate(scores.detach(), test.labels, ["AP"], offsets=test.offsets)["AP"].mean()
    assert float(found) == pytest.approx(result["test"]["AP"]["mean"])
    assert rankstruct(["predict", "--run", str(finished), "--data.predict_path", str(data / "test.csv")]) == 0


def test_the_card_says_what_was_assumed(data, finished):
    log = ClickLog.read(data / "log.csv")
    card, found = (finished / "README.md").read_text(), harvest_propensities(log)
    assert f"{int(log.click.sum())} clicks in 1500 sessions on 40 queries and" in card
    assert "**Assumed**: the position-based model" in card
    assert "`harvest_propensities`" in card
    assert "Those below 0.2 were replaced by it" in card
    rows = [line.split("|")[1:-1] for line in card.splitlines() if line.startswith("|      ")]
    rows = [[cell.strip() for cell in row] for row in rows][:6]
    for rank, row in enumerate(rows):
        value, low, high = found.values[rank], found.low[rank], found.high[rank]
        used = max(min(value, 1), 0.2)
        assert row == [str(rank + 1), f"{value:.3g}", f"{low:.3g} to {high:.3g}", f"{used:.3g}"]


def test_the_same_command_is_not_run_again(data, finished, capsys):
    before = (finished / "scorer.pt").read_bytes()
    command = ["rank", "--clicks", str(data / "log.csv"), "--test", str(data / "test.csv"), *QUICK]
    assert rankstruct([*command, "--clip", "0.2", "--output", str(finished)]) == 0
    assert "nothing was trained" in capsys.readouterr().out
    assert (finished / "scorer.pt").read_bytes() == before
    assert rankstruct([*command, "--clip", "0.3", "--output", str(finished)]) == 1
    assert "other" in capsys.readouterr().err


def test_parquet_is_read_too(data, tmp_path):
    command = ["rank", "--clicks", str(data / "log.parquet"), "--test", str(data / "test.csv"), *QUICK]
    assert rankstruct([*command, "--output", str(tmp_path / "out")]) == 0
    assert json.loads((tmp_path / "out" / "result.json").read_text())["test"]["nDCG@10"]["mean"] > 0.93


@pytest.mark.sampled(3)
@pytest.mark.parametrize("how", ["harvest", "em", "file"])
def test_features_may_come_from_lists(data, tmp_path, how, capsys):
    given = how
    if how == "file":
        given = tmp_path / "propensities.txt"
        given.write_text(" ".join(str(1 / rank) for rank in range(1, 7)))
    command = ["rank", "--clicks", str(data / "bare.csv"), "--train", str(data / "lists.csv"), *QUICK]
    command += ["--test", str(data / "test.csv"), "--propensities", str(given), "--output", str(tmp_path / "out")]
    with pytest.warns(
        UserWarning, match="of the 320 documents of the table .* not in the log.*: they were never shown"
    ):
        assert rankstruct(command) == 0
    result = json.loads((tmp_path / "out" / "result.json").read_text())
    assert result["test"]["nDCG@10"]["mean"] > 0.93
    assert result["clicks"]["propensities"]["by"] == how
    card = (tmp_path / "out" / "README.md").read_text()
    assert {"harvest": "harvest", "em": "regression EM", "file": "given as a file"}[how] in card
    assert ("95 % interval" in card) == (how != "file")
    assert "They were not clipped." in card


@pytest.mark.parametrize(
    ("change", "options", "message"),
    [
        (dict.fromkeys(FEATURES), [], "there are no columns of features"),
        ({"f0": np.arange(9000)}, [], "feature 'f0' of document .* of query .* in row"),
        ({"city": "Bonn"}, [], "features must be numbers, remove other columns"),
        ({"position": None}, [], "there is no column 'position'"),
        ({"click": 0}, [], "cannot be estimated with --propensities harvest"),
        ({"click": 0}, ["--propensities", "FILE"], "the log has no clicks"),
        ({}, ["--propensities", "harvets"], "expected one propensity per rank, .* one of harvest, swaps, em"),
        ({}, ["--clip", "2"], "clip must be a finite number above 0 and at most 1"),
        ({}, ["--vali", "FILE"], "--clicks takes --train, for features, and --test"),
        ({}, ["--test", "missing.csv"], "missing.csv: no such file"),
        ({}, ["--measures", "RR@10"], "RR@10 does not support item_weights"),
        ({}, ["--label", "grade"], "--label has no effect without --train or --test; remove it"),
    ],
)
def test_what_is_wrong_is_named(data, tmp_path, change, options, message, capsys):
    table = pd.read_csv(data / "log.csv")
    table = table.assign(**{name: value for name, value in change.items() if value is not None})
    table = table.drop(columns=[name for name, value in change.items() if value is None])
    table.to_csv(tmp_path / "log.csv", index=False)
    (tmp_path / "six.txt").write_text("1 0.5 0.3 0.2 0.2 0.1")
    options = [str(tmp_path / "six.txt") if word == "FILE" else word for word in options]
    command = ["rank", "--clicks", str(tmp_path / "log.csv"), *QUICK, *options, "--output", str(tmp_path / "out")]
    assert rankstruct(command) != 0
    found = " ".join(capsys.readouterr().err.split())
    assert re.search(message, found), found


def test_lists_without_a_document_of_the_log_are_refused(data, tmp_path, capsys):
    lists = pd.read_csv(data / "lists.csv")
    lists.iloc[:-SIZE].to_csv(tmp_path / "lists.csv", index=False)
    command = ["rank", "--clicks", str(data / "bare.csv"), "--train", str(tmp_path / "lists.csv"), *QUICK]
    assert rankstruct([*command, "--output", str(tmp_path / "out")]) == 1
    assert "documents of the log are missing, such as document" in (said := capsys.readouterr().err)
    assert "; --drop-missing leaves out their clicks, or add the documents of" in said
    assert "with_documents" not in said
    dropped = "of the .* documents of the log .* are not in the table.* rows with .* clicks"
    with pytest.warns(UserWarning, match="of the table"), pytest.warns(UserWarning, match=dropped):
        assert rankstruct([*command, "--drop-missing", "--output", str(tmp_path / "out")]) == 0
    result = json.loads((tmp_path / "out" / "result.json").read_text())
    bare, kept = pd.read_csv(data / "bare.csv"), set(lists["docid"][:-SIZE])
    gone = bare[~bare["document"].isin(kept)]
    assert result["clicks"]["dropped"] == {"rows": len(gone), "clicks": int(gone["click"].sum())}
    assert result["clicks"]["rows"] == len(bare) - len(gone)
    card = (tmp_path / "out" / "README.md").read_text()
    assert (
        f"So were {len(gone)} rows of the log, with {gone['click'].sum()} clicks, on documents without features" in card
    )
