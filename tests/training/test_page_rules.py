"""Columns on their way from files to losses and measures under rules."""

import numpy as np
import pandas as pd
import pytest
import pytorch_lightning as pl
import scipy.optimize
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader

import rankstruct as rs
from rankstruct.constraints.rules import NO_GROUP, Groups, group_ids
from rankstruct.data import BatchLoader, DataError, RankingData, collate, concatenate
from rankstruct.data.batches import ListDataset
from rankstruct.data.clean import keep_documents
from rankstruct.training import RankingDataModule, RankingModule, RuleWatch

RULES = ["diversity_groups <= 2 @ 5", "main=1 <= 1 @ 5"]


def trainer(folder, epochs, *callbacks, **options):
    quiet = dict.fromkeys(("enable_progress_bar", "enable_model_summary", "logger"), False)
    return pl.Trainer(
        max_epochs=epochs,
        accelerator="cpu",
        default_root_dir=folder,
        callbacks=list(callbacks),
        **{"enable_checkpointing": False, **quiet, **options},
    )


def synthetic(**options):
    return RankingDataModule(builtin="synthetic-groups", columns={"main": 0}, **options)


def module(rules=RULES, **options):
    torch.manual_seed(0)
    loss = rs.StructuredHingeLoss("nDCG@5", constraints=rules)
    return RankingModule(rs.LinearScorer(10), loss, measures=["nDCG@5"], **options)


def test_the_loss_of_a_module_is_that_of_its_scores(tmp_path):
    data, here = synthetic(), module()
    lists = data.part("train")
    scores = here.scorer(torch.tensor(lists.features)).detach()
    columns = {"main": lists.features[:, 0], "diversity_groups": lists.diversity_groups}
    expected = here.loss(scores, torch.tensor(lists.labels), columns=columns, offsets=torch.tensor(lists.offsets))
    assert here.mean_loss(data.objective_batches()) == pytest.approx(expected.item(), abs=1e-6)
    before = here.mean_loss(data.objective_batches())
    trainer(tmp_path, 2).fit(here, data)
    assert here.mean_loss(data.objective_batches()) < before


@pytest.mark.needs("pytorch_lightning>=2.6")
def test_training_resumes_to_the_same_bits(tmp_path):
    whole, half = (module(optimizer=torch.optim.Adam) for _ in range(2))
    trainer(tmp_path, 2).fit(whole, synthetic(lists_per_batch=30))
    run = trainer(tmp_path, 1)
    run.fit(half, synthetic(lists_per_batch=30))
    run.save_checkpoint(tmp_path / "last.ckpt")
    resumed = module(optimizer=torch.optim.Adam)
    again = {"ckpt_path": tmp_path / "last.ckpt", "weights_only": False}
    trainer(tmp_path, 2).fit(resumed, synthetic(lists_per_batch=30), **again)
    assert torch.equal(whole.scorer.linear.weight, resumed.scorer.linear.weight)
    assert not torch.equal(whole.scorer.linear.weight, half.scorer.linear.weight)


@pytest.mark.parametrize(
    ("rules", "told"),
    [
        (
            ["mian <= 2 @ 5"],
            "rules of StructuredHingeLoss are about 'mian', .* did you mean main.; set data.columns to {mian: HOW}",
        ),
        (["main=2 <= 1 @ 5"], "no document has main=2, as in the rule 'main=2 <= 1 @ 5'"),
    ],
)
def test_a_missing_column_is_told_before_training(rules, told, tmp_path):
    here = module(rules)
    started = here.scorer.linear.weight.clone()
    with pytest.raises(ValueError, match=told):
        trainer(tmp_path, 1).fit(here, synthetic())
    assert torch.equal(started, here.scorer.linear.weight)


def test_a_list_without_a_page_has_its_number_in_the_data(tmp_path):
    lists = rs.data.synthetic_groups(lists=6)[0]
    main = np.ones(lists.num_documents, np.int64)
    main[lists.offsets[4] : lists.offsets[5]] = 0
    lists = lists.with_columns({"main": main})
    loader = BatchLoader(lists, lists_per_batch=2)
    for rules in (["main=1 >= 1 @ 5"], ["diversity_groups <= 1 @ 2", "main=1 >= 1 @ 5"]):
        with pytest.raises(ValueError, match=r"no ranking of list 4 keeps 'main=1 >= 1 @ 5'"):
            trainer(tmp_path, 1).fit(module(rules), loader, loader)


def test_groups_are_joined_whether_or_not_all_parts_have_some():
    none, numbers, names = (group_ids("g", each) for each in ([None, None], [3, None], ["ann", None]))
    assert Groups.joined("g", [none, numbers]).names is None
    assert Groups.joined("g", [none, numbers, none]).texts() == ["", "", "3", "", "", ""]
    assert Groups.joined("g", [names, none]).texts() == ["ann", "", "", ""]
    assert Groups.joined("g", [numbers, none, names]).texts() == ["3", "", "", "", "ann", ""]


def test_loaders_without_a_data_module(tmp_path):
    lists = rs.data.synthetic_groups(lists=6)[0]
    for data, told in ((lists, "the data have 'diversity_groups'"), (lists.with_columns({"main": 0}), None)):
        loader = DataLoader(ListDataset(data), batch_size=2, collate_fn=collate)
        if told is None:
            trainer(tmp_path, 1).fit(module(), loader, loader)
        else:
            with pytest.raises(ValueError, match=told):
                trainer(tmp_path, 1).fit(module(), loader, loader)


def random_lists(rng, texts):
    lengths = rng.integers(1, 9, 7)
    total = int(lengths.sum())
    data = RankingData.from_arrays(
        rng.normal(size=(total, 2)), rng.integers(0, 2, total), np.repeat(np.arange(7), lengths)
    )
    return data.with_columns({"seller": texts[rng.integers(0, len(texts), total)], "new": rng.integers(0, 2, total)})


def rows_of(data, which):
    """Features with what belongs to them."""
    return {(float(x), seller, new) for x, seller, new in zip(data, *which, strict=True)}


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10_000), st.booleans(), st.sampled_from([None, 2, 4]))
def test_columns_stay_with_their_documents(seed, shuffle, size):
    rng = np.random.default_rng(seed)
    data = random_lists(rng, np.array(["ann", "bob", "", "cy"], object))
    known = rows_of(data.features[:, 0], (data.group_columns["seller"].texts(), data.group_columns["new"].texts()))
    subsets = [data.select(rng.permutation(7)[:4]), keep_documents(data, rng.random(data.num_documents) < 0.6)]
    other = random_lists(rng, np.array(["bob", "dan"], object)).select([3, 1])
    other = RankingData(other.features, other.labels, other.offsets, ["x", "y"], group_columns=other.group_columns)
    both = concatenate([data, other])  # whose names have other numbers
    known |= rows_of(other.features[:, 0], (other.group_columns["seller"].texts(), other.group_columns["new"].texts()))
    for part in (*subsets, both):
        batches = [*BatchLoader(part, lists_per_batch=3, shuffle=shuffle, max_list_size=size, seed=seed)]
        seen = 0
        for batch in (*batches, collate(batches)):
            where = batch.where.numpy()
            groups = {name: each.at(where) for name, each in batch.columns.items()}
            found = rows_of(batch.features[batch.where][:, 0], (groups["seller"].texts(), groups["new"].texts()))
            assert found <= known
            assert all((each.ids[~where] == NO_GROUP).all() for each in batch.columns.values())
            seen += len(found)
        assert seen == 2 * (part.num_documents if size is None else np.minimum(part.lengths, size).sum())


def test_columns_from_comments_tables_and_features(tmp_path):
    rows = [(1, 1, "ann", 3), (0, 1, "bob", 2), (2, 1, "ann", 3), (0, 1, "cy", 1)]
    for part in ("train", "vali", "test"):
        (tmp_path / "files").mkdir(exist_ok=True)
        (tmp_path / "tables").mkdir(exist_ok=True)
        lines = (f"{label} qid:{qid} 1:0.5 2:{kind} # seller = {seller}\n" for label, qid, seller, kind in rows)
        (tmp_path / "files" / f"{part}.txt").write_text("".join(lines))
        frame = pd.DataFrame(rows, columns=["label", "qid", "seller", "kind"])
        frame.to_csv(tmp_path / "tables" / f"{part}.csv", index=False)
    for path, columns in (
        ("files", {"seller": r"seller = (\S+)", "kind": 1}),
        ("tables", {"seller": "seller", "kind": "kind"}),
    ):
        data = RankingDataModule(
            path=str(tmp_path / path), columns=columns, prepare=["query-minmax"] * (path == "files")
        )
        batch = next(iter(data.val_dataloader()))
        found = {name: each.at(0) for name, each in batch.columns.items()}
        assert found["seller"].texts() == ["ann", "bob", "ann", "cy"]
        assert found["kind"].texts() == ["3", "2", "3", "1"]
        loss = rs.StructuredHingeLoss("DCG@2", constraints="seller=ann <= 1 @ 2")
        scores = torch.tensor([[3.0, 1.0, 2.0, 0.0]])
        expected = loss(scores[0], batch.labels[0], columns={"seller": ["ann", "bob", "ann", "cy"]})
        assert torch.equal(loss(scores, batch.labels, columns=batch.columns), expected)
    for columns, told in (
        ({"seller": [1, 2]}, r"'seller' must have one entry per document, shape \(4,\), got \(2,\)"),
        ({"seller": [0.5] * 4}, "the groups in seller must be names or whole numbers, got 0.5"),
        ({"seller": "shop = (.*)"}, "no document has a comment"),
        ({"seller": 7}, "column must be a feature index from 0 to 3; got 7"),
        ({"seller": True}, "'seller' must have one entry per document"),
        ([1, 2, 3, 4], r"columns must be a mapping from names to groups, or a data frame, got \[1, 2, 3, 4\]"),
        ({"diversity_groups": [1, 2, 3, 4]}, "set by with_groups"),
    ):
        with pytest.raises(DataError, match=told):
            data.part("train").with_columns(columns)
    with pytest.raises(DataError, match="there is no column 'selller'; did you mean seller"):
        RankingDataModule(path=str(tmp_path / "tables"), columns={"seller": "selller"}).part("train")
    for columns in ({"a": True}, {"a": [1]}, "seller"):
        with pytest.raises(ValueError, match=r"data.columns(\['a'\] must be a column index| must be a mapping)"):
            RankingDataModule(builtin="synthetic", columns=columns)
    with pytest.raises(
        ValueError, match=r"data.columns\['a'\] must be a column index or a regular expression, got '\('"
    ):
        RankingDataModule(builtin="synthetic", columns={"a": "("})


def test_a_watch_of_several_columns(tmp_path):
    data, here = synthetic(lists_per_batch=7), module()
    for part, stage in (("vali", "val"), ("test", "test")):
        run = trainer(tmp_path, 1, RuleWatch())
        getattr(run, "validate" if stage == "val" else "test")(here, data, verbose=False)
        lists = data.part(part)
        scores = here.scorer(torch.tensor(lists.features)).detach()
        columns = {"main": lists.features[:, 0], "diversity_groups": lists.diversity_groups}
        found = rs.constraints.report_under(scores, lists.labels, "nDCG@5", RULES, columns, offsets=lists.offsets)
        for rule, broken in found.before.items():
            assert run.callback_metrics[f"{stage}/broken/{rule}"].item() == pytest.approx(broken / lists.num_lists)
            assert broken > 0
        logged = run.callback_metrics[f"{stage}/nDCG@5 under rules"].item()
        assert logged == pytest.approx(found.values["nDCG@5"].mean().item(), abs=1e-6)
        assert run.callback_metrics[f"{stage}/gap"] == 0
    for watch, told in (
        (RuleWatch("host <= 1"), "'host'.*data have 'diversity_groups', 'main'"),
        (RuleWatch(), "needs rules"),
    ):
        bare = RankingModule(rs.LinearScorer(10), rs.StructuredHingeLoss("nDCG@5"))
        with pytest.raises(ValueError, match=told):
            trainer(tmp_path, 1, watch).fit(bare, data)
    with pytest.raises(ValueError, match="time_limit must be a number of at least 0"):
        RuleWatch(RULES, time_limit=-1)


def test_a_watch_of_any_module(tmp_path):
    data, ours = synthetic(lists_per_batch=7), module()

    class Own(pl.LightningModule):
        def __init__(self, wrap):
            super().__init__()
            self.scorer, self.wrap = ours.scorer, wrap

        def validation_step(self, batch, index):
            return self.wrap(self.scorer(batch.features))

    expected = trainer(tmp_path, 1, RuleWatch(RULES))
    expected.validate(RankingModule(ours.scorer, measures=["nDCG@10"]), data, verbose=False)
    for wrap in (lambda scores: scores, lambda scores: {"scores": scores}):
        run = trainer(tmp_path, 1, RuleWatch(RULES))
        run.validate(Own(wrap), data, verbose=False)
        for name in ("val/nDCG@10 under rules", *(f"val/broken/{rule}" for rule in rs.Constraints(RULES).rules)):
            assert run.callback_metrics[name] == expected.callback_metrics[name]
    for watch, wrap, told in (
        (
            RuleWatch(RULES, selects=True),
            lambda scores: scores,
            "takes the place of the first measure of a RankingModule",
        ),
        (RuleWatch(RULES), lambda scores: None, "a step that returns scores, or a dictionary with them, got NoneType"),
    ):
        with pytest.raises(ValueError, match=told):
            trainer(tmp_path, 1, watch).validate(Own(wrap), data, verbose=False)


def test_overlapping_groups_run_no_programme_unless_asked(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    lists = RankingData.from_arrays(rng.normal(size=(60, 10)), rng.integers(0, 3, 60), np.repeat([1, 2, 3], 20))
    lists = lists.with_columns({"seller": rng.integers(0, 4, 60), "kind": rng.integers(0, 3, 60)})
    called = []
    program = scipy.optimize.milp
    monkeypatch.setattr(scipy.optimize, "milp", lambda *args, **options: called.append(1) or program(*args, **options))
    for limit in (0.0, 5.0):
        watch = RuleWatch(["seller <= 1 @ 4", "kind=1 >= 1 @ 4", "kind <= 2 @ 4"], time_limit=limit)
        run = trainer(tmp_path, 1, watch)
        here = RankingModule(rs.LinearScorer(10), rs.StructuredHingeLoss("nDCG@4"), measures=["nDCG@4"])
        run.validate(here, BatchLoader(lists, lists_per_batch=2), verbose=False)
        assert run.callback_metrics["val/nDCG@4 under rules"] > 0
        assert (run.callback_metrics["val/gap"] > 0) or called or limit == 0
        assert not called or limit > 0


def test_the_measure_under_rules_selects(tmp_path):
    stopping = pl.callbacks.EarlyStopping("val/nDCG@5", mode="max")
    trainer(tmp_path, 1, RuleWatch(selects=True), stopping).fit(module(), synthetic())
    assert stopping.monitor == "val/nDCG@5 under rules"
    assert 0 < stopping.best_score < 1
