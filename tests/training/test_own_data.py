"""A data module of one's own, named by its class path as a scorer is."""

import json
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest
import pytorch_lightning as pl
import torch
from programs import main

import rankstruct as rs

MODULE = """
from functools import cached_property

import numpy as np

import rankstruct as rs
from rankstruct.training import ListsDataModule


class FewDigits(ListsDataModule):
    def __init__(self, lists: int, fold: int = 0, lists_per_batch: int = 8, seed: int = 0) -> None:
        super().__init__({"lists_per_batch": lists_per_batch}, seed)
        self.lists, self.fold = lists, fold

    @cached_property
    def splits(self):
        train, vali, test = rs.data.digits()
        return rs.data.Splits(train.select(np.arange(self.fold, self.fold + self.lists)), vali, test)

    def describe(self):
        return super().describe() | {"lists": self.lists, "fold": self.fold, **self.training}


class NoOptions(ListsDataModule):
    @cached_property
    def splits(self):
        return rs.data.digits()
"""
QUICK = ["--trainer.max_epochs", "1", "--trainer.enable_progress_bar", "false"]
FIT = ["fit", "--config", "quickstart", *QUICK]

pytestmark = pytest.mark.usefixtures("no_pictures_here")


@pytest.fixture(scope="module", autouse=True)
def my_package(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    (folder / "my_package.py").write_text(MODULE)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        yield


def the_run(folder):
    (config,) = folder.glob("*/config.yaml")
    return config.parent


def parameters(folder):
    return json.loads((the_run(folder) / "metrics.json").read_text())["parameters"]


@pytest.mark.parametrize("option", ["data.init_args.lists", "data.lists"])
@pytest.mark.needs("pytorch_lightning>=2.6")
def test_a_class_and_its_options_replace_the_data_of_a_config(option, tmp_path):
    more = ["--data", "my_package.FewDigits", f"--{option}", "12", "--seed_everything", "3"]
    main([*FIT, *more, "--output", str(tmp_path)])
    found = parameters(tmp_path)
    assert (found["data"], found["lists"], found["fold"], found["seed"]) == ("FewDigits", 12, 0, 3)
    assert found["lists_per_batch"] == 5  # the config's, an option of both classes


@pytest.mark.needs("pytorch_lightning>=2.6")
def test_a_config_names_it_and_its_run_is_resumed_and_used(tmp_path, capsys):
    mine = tmp_path / "mine.yaml"
    mine.write_text("data:\n  class_path: my_package.FewDigits\n  init_args: {lists: 12, lists_per_batch: 4}\n")
    for name, epochs in (("parts", "1"), ("whole", "2")):
        given = ["--config", str(mine), "--trainer.max_epochs", epochs, "--output", str(tmp_path / name)]
        main([*FIT, *given])
    run, whole = the_run(tmp_path / "parts"), the_run(tmp_path / "whole")
    main(["fit", "--run", str(run), "--trainer.max_epochs", "2"])
    weights = [rs.load_scorer(each / "checkpoints" / "last.ckpt").linear.weight for each in (run, whole)]
    assert torch.equal(*weights)
    main(["test", "--run", str(run), *QUICK[2:]])
    assert "AP" in capsys.readouterr().out
    main(["predict", "--run", str(run), *QUICK[2:]])
    assert len((run / "scores.txt").read_text().split()) == rs.data.digits().test.num_documents


@pytest.mark.needs("pytorch_lightning>=2.6")
def test_one_without_options_or_seed(tmp_path):
    main([*FIT, "--data=my_package.NoOptions", "--output", str(tmp_path)])
    assert parameters(tmp_path)["data"] == "NoOptions"


@pytest.mark.needs("pytorch_lightning>=2.6")
def test_cross_validate_sets_its_fold(tmp_path):
    mine = ["--data", "my_package.FewDigits", "--data.lists", "10", *QUICK]
    here = ["--folds", "7", "--processes", "0", "--output", str(tmp_path)]
    assert main(["cross-validate", "--config", "quickstart", *here, *mine]) == 0
    folds = json.loads((tmp_path / "cross_validation.json").read_text())["folds"]
    assert [each["fold"] for each in folds] == [7]
    assert parameters(tmp_path / "fold7")["fold"] == 7


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--data", "my_package.FewDigit"], "data: there is no my_package.FewDigit; did you mean FewDigits?"),
        (["--data", "my_packag.FewDigits"], "data: No module named 'my_packag'"),
        (["--data", "torch.nn.Linear"], "data: torch.nn.Linear is not a ListsDataModule"),
        (["--data", "my_package.FewDigits", "--data.list", "3"], "FewDigits has no option 'list'; did you mean lists?"),
        (["--data", "my_package.FewDigits", "--data.lists", "x"], "data.lists: expected int, got x"),
        (["--data.init_args.lists", "3"], "there is no option 'data.init_args.lists'"),
        (["--config", "ratings-synthetic", "--data", "my_package.NoOptions"], "is not a RatingsDataModule"),
    ],
)
def test_what_is_wrong_is_named(given, said, tmp_path, capsys):
    with suppress(SystemExit):
        main([*(FIT[:1] if "--config" in given else FIT), *given, "--output", str(tmp_path)])
    assert said in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.needs("pytorch_lightning>=2.6")
def test_certify_says_that_it_cannot_read_it(tmp_path):
    from rankstruct.commands.certify import certify_run

    main([*FIT, "--data", "my_package.NoOptions", "--output", str(tmp_path)])
    with pytest.raises(ValueError, match=r"own data module, the run's is a my_package.NoOptions"):
        certify_run(the_run(tmp_path))


@pytest.mark.parametrize("varied", [0, 1, 3])
def test_validation_lists_of_equal_labels_are_refused_or_warned_of(varied):
    class Some(rs.training.ListsDataModule):
        @property
        def splits(self):
            train, vali, test = (part.select(range(4)) for part in rs.data.digits())
            labels = np.where(np.arange(vali.num_documents) < vali.offsets[varied], vali.labels, 0).astype(np.float32)
            return rs.data.Splits(train, replace(vali, labels=labels), test)

    module = rs.training.RankingModule(rs.LinearScorer(64))
    quiet = {
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "enable_checkpointing": False,
        "logger": False,
    }
    trainer = pl.Trainer(max_epochs=1, accelerator="cpu", **quiet)
    if varied == 0:
        with pytest.raises(ValueError, match=r"^in each of the 4 validation lists of Some all labels are equal"):
            trainer.fit(module, datamodule=Some())
    elif varied == 1:
        with pytest.warns(UserWarning, match="^in 3 of 4 validation lists of Some all labels are equal"):
            trainer.fit(module, datamodule=Some())
    else:
        trainer.fit(module, datamodule=Some())
