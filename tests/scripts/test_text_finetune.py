"""The experiment with a fine-tuned encoder: hidden states, losses, tables, and nothing run twice."""

import json

import numpy as np
import pytest
import torch
from scripts_by_path import script
from small_text import write_collection

pytestmark = pytest.mark.needs("sentence_transformers", "bm25s", "Stemmer")


@pytest.fixture
def experiment(monkeypatch):
    """The script, with one layer to train and few epochs."""
    module = script("text_finetune")
    for name, value in {"TRAINED": 1, "EPOCHS": 2, "DEPTH": 10, "AT_ONCE": 7, "AT_ONCE_IN_TRAINING": 3}.items():
        monkeypatch.setattr(module, name, value)
    return module


@pytest.fixture
def given(tmp_path):
    """A collection, an encoder of two layers, and the folder of the results."""
    from rankstruct.text import questions, tiny_encoder

    (tmp_path / "out").mkdir()
    encoder = tiny_encoder(questions(), tmp_path / "encoder")
    return str(write_collection(tmp_path / "small")), str(encoder), str(tmp_path / "out")


def test_layers_to_train_continue_from_the_hidden_states(experiment, given):
    model, texts = experiment.last_layers(given[1], "cpu"), experiment.hidden(*given)
    assert len(model[0].auto_model.encoder.layer) == 1
    found = experiment.encoded(model.eval(), texts, torch.arange(len(texts.lengths)), 7).detach()
    expected = np.stack([each for part in experiment.embedded(*given) for each in part.values()])
    np.testing.assert_allclose(found.numpy(), expected, atol=2e-3)


def test_measures_without_training_are_those_of_the_encoder(experiment, given):
    model, texts = experiment.last_layers(given[1], "cpu"), experiment.hidden(*given)
    start, _ = experiment.started(given, [1], 0)
    (found,) = experiment.measured(model, texts, experiment.prepared(*given, 1, 0)[1][2:])
    for measure, values in start.items():
        np.testing.assert_allclose(found[measure], values[experiment.START][0], atol=0.02)


def test_gradients_of_every_loss_reach_the_layers(experiment, given):
    lists, texts = experiment.training_lists(*given, 1, 0), experiment.hidden(*given)
    training = experiment.prepared(*given, 1, 0)[1][0]
    for loss, make in experiment.LOSSES.items():
        model = experiment.last_layers(given[1], "cpu")
        batch = next(experiment.sampled(lists, np.random.default_rng(0), 4, 1 if loss == experiment.PEER else 2))
        experiment.loss_of_batch(make(model, 0.05), model, texts, training, batch).backward()
        gradients = [weight.grad for weight in model[0].auto_model.encoder.parameters()]
        assert all(each.isfinite().all() for each in gradients), loss
        assert sum(each.abs().sum() for each in gradients) > 0, loss


def test_grades_and_places_of_a_batch_are_those_of_the_judgements(experiment, given):
    queries, documents, labels = experiment.training_lists(*given, 1, 0)
    _, (training, _, _) = experiment.prepared(*given, 1, 0)
    for query, its, grades in zip(queries, documents, labels, strict=True):
        row = int((training.rows == query).nonzero())
        np.testing.assert_array_equal(training.labels[row, its], grades)
        assert grades.sum() == training.labels[row].sum()  # all that is relevant is in the list

    class Told(torch.nn.Module):
        def forward(self, asked, found, labels, where):
            return labels.sum(1)

    batch = next(experiment.sampled((queries, documents, labels), np.random.default_rng(0), 4, 2))
    model = experiment.last_layers(given[1], "cpu")
    found = experiment.loss_of_batch(Told(), model, experiment.hidden(*given), training, batch)
    assert all(known >= its.sum() > 0 for known, (_, _, its) in zip(found.tolist(), batch, strict=True))


@pytest.mark.soak
def test_tables_with_the_frozen_encoder_and_kept_results(experiment, given, tmp_path, capsys, monkeypatch):
    collection, encoder, output = given
    command = ["--collection", collection, "--encoder", encoder, "--output", output, "--processes", "0", "--seeds", "2"]
    command += ["--losses", "AP hinge", experiment.PEER, "--temperatures", "0.05", "--json", str(tmp_path / "it.json")]
    assert experiment.main(command) == 0
    printed = capsys.readouterr().out
    tables = json.loads((tmp_path / "it.json").read_text())["tables"]
    means = {row[0]: row[1:] for row in tables["small means"]["rows"]}
    assert [*means] == [experiment.START, "AP hinge", experiment.PEER]
    for loss in ("AP-hinge", "theirs-MultipleNegatives"):
        results = [*(tmp_path / "out" / "finetune-small" / loss).glob("*/result.json")]
        found = {path.parent.name: json.loads(path.read_text()) for path in results}
        assert len(found) == 3  # two rates, and the second seed of the better one
        first = {name: each["vali"] for name, each in found.items() if name.endswith("-0")}
        assert all(each["vali"] == max(each["epochs"]) and len(each["epochs"]) == 3 for each in found.values())
        chosen = max(first, key=first.get).removesuffix("-0")
        values = [np.mean(each["test"]["nDCG@10"]) for name, each in found.items() if name.startswith(chosen)]
        assert means[loss.replace("-h", " h").replace("theirs-", "theirs: ")][0].startswith(f"{np.mean(values):.4f} ±")
    assert [row[:3] for row in tables["small tests"]["rows"]][::2] == [
        ["AP hinge", "nDCG@10", experiment.START],
        [experiment.PEER, "nDCG@10", experiment.START],
        ["AP hinge", "nDCG@10", experiment.PEER],
    ]

    def train(*args, **options):
        raise AssertionError("run again")

    monkeypatch.setattr(experiment, "train", train)
    assert experiment.main(command) == 0
    assert capsys.readouterr().out == printed
