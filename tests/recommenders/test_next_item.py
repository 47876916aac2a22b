"""Ranking losses in RecTools' transformers: values and gradients are those of the bare losses on the scores of all positions."""

import re
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch
from scripts_by_path import script

import rankstruct as rs
from rankstruct.recommenders import Negatives, catalogue, next_item_module
from rankstruct.training import RankingMeasures

LOSSES = {
    "softmax": rs.SoftmaxLoss(),
    "AP": rs.StructuredHingeLoss("AP"),
    "AP ramp": rs.StructuredHingeLoss("AP", reference="predicted"),
    "AUC": rs.StructuredHingeLoss("AUC"),
    "AUC ramp": rs.StructuredHingeLoss("AUC", reference="predicted"),
    "SL@3": rs.losses.TopKSoftmaxLoss(k=3),
    "PSL": rs.losses.PairwiseSoftmaxLoss(temperature=0.5, scale=2),
}
#: Sessions of 2 to 9 items of 12, some of them repeated; 8 is the longest that the model takes in training.
SESSIONS = [[0, 1], [3, 3, 4, 3], [5, 2, 7, 8, 9, 10, 11, 0, 1], [6, 5], [1, 6, 2, 9, 4], [10, 11, 8]]

if find_spec("rectools"):

    class Ranked(next_item_module()):
        """One that `pickle` finds by its name."""


needs_rectools = pytest.mark.needs("rectools")
pytestmark = pytest.mark.filterwarnings("ignore")


def dataset(weight=1.0):
    import pandas as pd
    from rectools.dataset import Dataset

    rows = [
        (user, item, weight, pd.Timestamp(2020, 1, 1 + at))
        for user, items in enumerate(SESSIONS)
        for at, item in enumerate(items)
    ]
    return Dataset.construct(pd.DataFrame(rows, columns=["user_id", "item_id", "weight", "datetime"]))


def last_items(interactions):
    return interactions.groupby("user_id")["datetime"].rank(ascending=False) <= 1


def make(module, *, model="SASRecModel", trainer=None, **options):
    import rectools.models

    small = {"n_blocks": 1, "n_heads": 2, "n_factors": 8, "session_max_len": 8, "dropout_rate": 0.0, "batch_size": 4}
    if module is not None:
        options["lightning_module_type"] = module
    options = {**small, "use_key_padding_mask": True, **options}
    return getattr(rectools.models, model)(get_trainer_func=trainer or quiet, **options)


def quiet():
    import pytorch_lightning as pl

    names = ("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary")
    return pl.Trainer(max_epochs=1, accelerator="cpu", **dict.fromkeys(names, False))


def built(module, dtype=torch.float32, **options):
    """The Lightning module with random weights, and a batch of all sessions."""
    torch.manual_seed(0)
    model = make(module, batch_size=len(SESSIONS), **options)
    model._build_model_from_dataset(dataset())
    torch.manual_seed(1)
    found = model.lightning_model.to(dtype)
    for each in found.parameters():
        torch.nn.init.normal_(each)
    (batch,) = model.data_preparator.get_dataloader_train()
    return found, batch


def bare(module, batch, loss):
    """The loss of each real position on its scores of all items, by plain loops over RecTools' own scores."""
    scores = module.torch_model(batch) / module.logits_t
    rows, labels = [], []
    for session in range(len(scores)):
        for at in range(scores.shape[1]):
            target = int(batch["y"][session, at])
            if target:
                rows.append(scores[session, at, 1:])
                labels.append([float(item + 1 == target) for item in range(len(rows[-1]))])
    return loss(torch.stack(rows), torch.tensor(labels))


def gradients(module, value):
    module.zero_grad()
    value.backward()
    return {name: each.grad.clone() for name, each in module.torch_model.named_parameters() if each.grad is not None}


@needs_rectools
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", LOSSES)
def test_values_and_gradients_are_those_of_the_bare_loss(name, dtype, monkeypatch):
    monkeypatch.setattr(catalogue, "_BLOCK", 40)  # three positions at once
    module, batch = built(next_item_module(LOSSES[name]), dtype)
    found, wanted = module._calc_custom_loss(batch, 0), bare(module, batch, LOSSES[name])
    assert found.dtype == dtype
    near = {"rtol": 1e-4, "atol": 1e-5} if dtype == torch.float32 else {"rtol": 1e-9, "atol": 1e-11}
    torch.testing.assert_close(found, wanted, **near)
    theirs = gradients(module, wanted)
    ours = gradients(module, found)
    assert ours.keys() == theirs.keys()
    for each in ours:
        torch.testing.assert_close(ours[each], theirs[each], **near)


@needs_rectools
@pytest.mark.parametrize(
    "options",
    [
        {"use_key_padding_mask": False},
        {"similarity_module_kwargs": {"distance": "cosine"}, "lightning_module_kwargs": {"logits_t": 0.5}},
    ],
    ids=["with padding", "cosines"],
)
def test_other_models(options):
    module, batch = built(next_item_module(), torch.float64, **options)
    torch.testing.assert_close(module._calc_custom_loss(batch, 0), bare(module, batch, rs.SoftmaxLoss()))


@needs_rectools
def test_masked_items_of_bert4rec():
    module, batch = built(
        next_item_module(), torch.float64, model="BERT4RecModel", mask_prob=0.5, use_key_padding_mask=True
    )
    first, real = module.data_preparator.n_item_extra_tokens, batch["y"] != 0
    assert first == 2
    scores = module.torch_model(batch)[real][:, first:]
    wanted = torch.nn.functional.cross_entropy(scores, batch["y"][real] - first)
    torch.testing.assert_close(module._calc_custom_loss(batch, 0), wanted)


@needs_rectools
@pytest.mark.parametrize("kind", ["uniform", "popularity", "in-batch"])
def test_sampled_items(kind):
    """The estimate of the softmax loss is that of the drawn items, corrected, without those that are the next item."""
    number = 1 if kind == "in-batch" else 5
    module, batch = built(next_item_module(negatives=Negatives(kind, number, correct=True)), torch.float64)
    torch.manual_seed(2)
    found = module._calc_custom_loss(batch, 0)
    encoded, targets, _ = module.encoded(batch)
    counts = np.bincount(targets.numpy(), minlength=encoded.num_items) + np.bincount(
        batch["x"][np.arange(len(SESSIONS)), (batch["x"] != 0).int().argmax(1)] - 1, minlength=encoded.num_items
    )
    share = torch.from_numpy(np.full(12, 1 / 12) if kind == "uniform" else counts / counts.sum())
    torch.manual_seed(2)
    if kind == "in-batch":
        items = targets.expand(len(targets), -1)
    else:
        others = torch.searchsorted(share.cumsum(0), torch.rand(len(targets), number, dtype=torch.float64)).clamp(
            max=11
        )
        items = torch.cat([targets[:, None], others], 1)
    scores = (encoded.lists @ encoded.items.T).gather(1, items)
    labels = torch.zeros_like(scores)
    if kind == "in-batch":
        labels.fill_diagonal_(1.0)
        scores = scores - share.log()[items]
    else:
        labels[:, 0] = 1.0
        scores[:, 1:] -= (share * number).log()[others]
    where = (labels > 0) | (items != targets[:, None])
    assert not where.all()
    torch.testing.assert_close(found, rs.SoftmaxLoss()(scores, labels, where=where))


@needs_rectools
@pytest.mark.parametrize("negatives", ["all", "in-batch", Negatives("uniform", 3)])
def test_a_batch_without_a_next_item_teaches_nothing(negatives):
    """As when BERT4Rec draws no mask."""
    module, batch = built(next_item_module(LOSSES["AP ramp"], negatives=negatives))
    value = module._calc_custom_loss({**batch, "y": torch.zeros_like(batch["y"])}, 0)
    assert value == 0
    assert not any(each.any() for each in gradients(module, value).values())


@needs_rectools
@pytest.mark.parametrize("name", LOSSES)
def test_autocast_is_near_to_float32(name):
    module, batch = built(next_item_module(LOSSES[name]))
    wanted = module._calc_custom_loss(batch, 0)
    with torch.autocast("cpu", torch.bfloat16):
        found = module._calc_custom_loss(batch, 0)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, wanted, rtol=0.05, atol=0.05)


@needs_rectools
def test_validation_ranks_new_items_and_training_goes_on(tmp_path):
    import pytorch_lightning as pl
    from rectools.models import SASRecModel

    def trainer(epochs=2):
        options = {"accelerator": "cpu", "enable_progress_bar": False, "enable_model_summary": False, "logger": False}
        keeper = pl.callbacks.ModelCheckpoint(tmp_path, save_last=True)
        return pl.Trainer(max_epochs=epochs, callbacks=[RankingMeasures(["nDCG@3"]), keeper], **options)

    module = next_item_module(LOSSES["AP ramp"])
    torch.manual_seed(0)
    model = make(module, trainer=trainer, get_val_mask_func=last_items).fit(dataset())
    logged = float(model.fit_trainer.callback_metrics["val/nDCG@3"])

    seen, batches = [], model.data_preparator.get_dataloader_val()
    model.torch_model.eval()
    numbers = model.data_preparator.item_id_map
    for batch in batches:
        scores = model.torch_model(batch)[:, -1].detach()
        for each, x, y in zip(scores, batch["x"], batch["y"][:, 0], strict=True):
            rivals = [item for item in range(1, numbers.size) if item not in x.tolist() or item == int(y)]
            rank = 1 + sum(float(each[item]) > float(each[y]) for item in rivals)
            seen.append(1 / np.log2(1 + rank) if rank <= 3 else 0.0)
    assert len(seen) >= 3
    assert logged == pytest.approx(np.mean(seen), abs=1e-6)

    again = SASRecModel.load_from_checkpoint(
        tmp_path / "last.ckpt",
        model_params_update={
            "lightning_module_type": module,
            "get_trainer_func": trainer,
            "get_val_mask_func": last_items,
        },
    )
    users = list(range(len(SESSIONS)))
    options = {"users": users, "dataset": dataset(), "k": 3, "filter_viewed": True}
    assert model.recommend(**options).equals(again.recommend(**options))
    again.fit_partial(dataset(), min_epochs=1, max_epochs=1)
    assert again.fit_trainer.current_epoch == 3
    assert type(again.lightning_model) is module


@needs_rectools
def test_hstu_trains_and_ranks(monkeypatch):
    """RecTools leaves the memory of some of its weights as it was until training starts, after the sanity check."""
    import pandas as pd
    import pytorch_lightning as pl
    from rectools.models.nn.transformers import hstu

    class Layer(hstu.STULayer):
        def __init__(self, *args, **options):
            super().__init__(*args, **options)
            torch.nn.init.constant_(self.uvqk_proj, float("nan"))

    def trainer(checks):
        names = ("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary")
        options = {"callbacks": [RankingMeasures(["RR"])], "num_sanity_val_steps": checks, "accelerator": "cpu"}
        return pl.Trainer(max_epochs=1, **options, **dict.fromkeys(names, False))

    monkeypatch.setattr(hstu, "STULayer", Layer)
    found = []
    for checks in (0, 2):
        torch.manual_seed(0)
        options = {"model": "HSTUModel", "use_key_padding_mask": False, "get_val_mask_func": last_items}
        model = make(next_item_module(LOSSES["AP ramp"]), trainer=lambda number=checks: trainer(number), **options)
        model.fit(dataset())
        assert 0 < float(model.fit_trainer.callback_metrics["val/RR"]) <= 1
        when = pd.DataFrame({"user_id": [0, 1], "datetime": pd.Timestamp(2020, 2, 1)})
        found.append(model.recommend([0, 1], dataset(), k=3, filter_viewed=True, context=when))
    assert found[0].equals(found[1])


@needs_rectools
def test_a_class_without_a_name_is_explained_when_it_is_loaded():
    import pickle

    model = make(next_item_module()).fit(dataset())
    with pytest.raises(AttributeError, match="class Ranked"):
        pickle.loads(pickle.dumps(model))
    named = make(Ranked).fit(dataset())
    again = pickle.loads(pickle.dumps(named))
    assert type(again.lightning_model) is Ranked
    torch.testing.assert_close(again.torch_model.state_dict(), named.torch_model.state_dict())


@needs_rectools
@pytest.mark.parametrize("distance", ["dot", "cosine"])
def test_losses_of_rectools_in_the_comparison_are_its_own(distance, monkeypatch):
    """`scripts/sequences.py` computes them for the positions that are no padding."""
    comparison = script("sequences")

    def both(**loss):
        options = {"similarity_module_kwargs": {"distance": distance}, "lightning_module_kwargs": {"logits_t": 0.5}}
        theirs, batch = built(None, torch.float64, **options, **loss)
        ours, _ = built(next_item_module(), torch.float64, **options, gbce_t=loss.get("gbce_t", 0.2))
        for each in theirs.torch_model.item_model.parameters():
            each.data[0] = (
                0.0  # padding, whose score is 0 in the script, and that of a vector that is not trained in RecTools
            )
        ours.load_state_dict(theirs.state_dict())
        return ours, theirs, batch

    ours, theirs, batch = both(loss="softmax")
    torch.testing.assert_close(comparison.softmax_of_rectools(ours, batch, 0), theirs.training_step(batch, 0))

    number = 3
    monkeypatch.setattr(comparison, "NEGATIVES", number)
    items = torch.randint(12, (*batch["y"].shape, number), generator=torch.Generator().manual_seed(3))
    ours, theirs, batch = both(loss="gBCE", n_negatives=number, gbce_t=0.75)
    wanted = theirs.training_step({**batch, "negatives": items + 1}, 0)
    order = torch.cat([rows[(part["y"] != 0).nonzero()[:, 0]] for rows, part in ours._parts(batch)])
    counted = torch.zeros(len(batch["y"]), dtype=torch.long)
    drawn = []
    for row in order.tolist():
        drawn.append(items[row][batch["y"][row] != 0][counted[row]])
        counted[row] += 1
    monkeypatch.setattr(torch, "randint", lambda *args, **options: torch.stack(drawn))
    torch.testing.assert_close(comparison.gbce_of_rectools(ours, batch, 0), wanted)


@needs_rectools
def test_the_example_of_the_guide_runs_as_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    guide = Path(__file__).parents[2] / "docs" / "guides" / "other-models.md"
    section = guide.read_text(encoding="utf-8").partition("## RecTools")[2]
    names = {}
    code = re.search(r"^```\n(.*?)^```", section, re.DOTALL | re.MULTILINE)[1]
    exec(code.replace("epochs=20", "epochs=1"), names)
    assert names["model"].is_fitted


@needs_rectools
def test_what_it_refuses():
    with pytest.raises(TypeError, match=r"loss must be a ranking loss, such as rs.SoftmaxLoss\(\); got 'AP'"):
        next_item_module("AP")
    with pytest.raises(ValueError, match="negatives"):
        next_item_module(negatives="some")
    with pytest.raises(ValueError, match="the loss must have reduction='mean' or 'sum'"):
        next_item_module(rs.SoftmaxLoss(reduction="none"))
    ordinal = rs.OrdinalLoss(2)
    with pytest.raises(ValueError, match=r"would not train the parameters of the loss, first, steps: .*OrdinalLoss"):
        next_item_module(ordinal)
    next_item_module(ordinal.requires_grad_(False))
    model = make(next_item_module(), loss="gBCE", n_negatives=2)
    with pytest.raises(
        ValueError, match="a ranking loss replaces RecTools' loss, so leave loss= at the default; got 'gBCE'"
    ):
        model._build_model_from_dataset(dataset())
    model = make(next_item_module())
    with pytest.raises(
        ValueError, match="a ranking loss takes no weights of interactions; set the column 'weight' to 1"
    ):
        model.fit(dataset(weight=2.0))


def test_without_rectools_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "rectools.models.nn.transformers.lightning", None)
    with pytest.raises(ImportError, match=r"rectools is not installed: pip install 'rankstruct\[sequences\]'"):
        next_item_module()
