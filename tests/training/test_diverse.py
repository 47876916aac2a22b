"""Groups on their way from files to the diverse loss and its measures."""

from dataclasses import replace

import pytest
import pytorch_lightning as pl
import torch

import rankstruct as rs
from rankstruct.training import DCRounds, RankingDataModule, RankingModule


def trainer(folder, epochs, *callbacks):
    return pl.Trainer(
        max_epochs=epochs,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=folder,
        callbacks=list(callbacks),
    )


def mean_objective(module, data):
    return module.mean_loss(data.objective_batches())


def test_a_scorer_is_trained_and_judged_with_groups(tmp_path):
    torch.manual_seed(0)
    data = RankingDataModule(builtin="synthetic-groups", lists_per_batch=10)
    loss = rs.StructuredHingeLoss("diverse_nDCG@5", reference="predicted")
    module = RankingModule(rs.LinearScorer(10), loss, measures=["diverse_nDCG@5", "StRecall@5", "nDCG@5"])
    before = mean_objective(module, data)
    run = trainer(tmp_path, 5)
    run.fit(module, data)
    assert mean_objective(module, data) < before
    run.test(module, data, verbose=False)
    test = data.splits.test
    scores = module.scorer(torch.tensor(test.features)).detach()
    expected = rs.evaluate(
        scores,
        test.labels,
        ["diverse_nDCG@5"],
        offsets=torch.tensor(test.offsets),
        diversity_groups=test.diversity_groups,
    )["diverse_nDCG@5"]
    assert run.callback_metrics["test/diverse_nDCG@5"].item() == pytest.approx(expected.mean().item(), abs=1e-6)


def test_dc_rounds_and_combinations_with_groups(tmp_path):
    data = RankingDataModule(builtin="synthetic-groups", lists_per_batch=20)
    diverse = rs.StructuredHingeLoss("diverse_nDCG@5", reference="predicted")
    loss = rs.CombinedLoss([diverse, rs.StructuredHingeLoss("nDCG@5", feature_map="positional")])
    module = RankingModule(
        rs.LinearScorer(10), loss, regularization=1e-2, start="regression", measures=["diverse_nDCG@5"]
    )
    before = mean_objective(module, data)
    trainer(tmp_path, 4, DCRounds(epochs=2)).fit(module, data)
    assert 0 < mean_objective(module, data) < 2 * before


def test_groups_from_comments_and_columns(tmp_path):
    for part in ("train", "vali", "test"):
        (tmp_path / f"{part}.txt").write_text(
            "1.5 qid:1 1:0.5 2:7 # host = b.org\n0 qid:1 1:0.5 2:8 # host = a.org\n2 qid:1 1:0.1 2:7 # host = b.org\n"
        )
    for diversity_groups in (r"host = (\S+)", 1):
        data = RankingDataModule(
            path=str(tmp_path), labels="real", diversity_groups=diversity_groups, prepare=["query-minmax"], cache=False
        )
        batch = next(iter(data.val_dataloader()))
        assert len(set(batch.diversity_groups[0].tolist())) == 2
        assert batch.diversity_groups[0, 0] == batch.diversity_groups[0, 2]


def test_data_without_groups_are_an_error_that_says_so(tmp_path):
    module = RankingModule(rs.LinearScorer(20), rs.StructuredHingeLoss("diverse_nDCG@5"))
    with pytest.raises(
        ValueError, match=r"StructuredHingeLoss needs groups, but the data have none; set data.diversity_groups"
    ):
        trainer(tmp_path, 1).fit(module, RankingDataModule(builtin="synthetic"))


def test_the_exact_solvers_take_groups_through_the_risk():
    import numpy as np

    from rankstruct.data import synthetic_groups
    from rankstruct.estimators.linear import ranking_risk
    from rankstruct.solvers import Bundle, CuttingPlane

    data, _ = synthetic_groups(lists=20, seed=0)
    risk = ranking_risk(rs.StructuredHingeLoss("diverse_nDCG@5", reference="ideal"), data)
    solutions = [kind(tolerance=1e-2).minimise(risk, 1.0) for kind in (Bundle, CuttingPlane)]
    assert solutions[0].objective == pytest.approx(solutions[1].objective, rel=0.03)
    assert all(solution.objective < risk(np.zeros(10))[0] for solution in solutions)
    with pytest.raises(ValueError, match=r"StructuredHingeLoss needs diversity_groups=, one id per document"):
        ranking_risk(rs.StructuredHingeLoss("diverse_nDCG@5"), replace(data, diversity_groups=None))


@pytest.mark.filterwarnings("ignore:.*no better than w = 0")
def test_a_ranker_is_validated_as_the_module_is(tmp_path):
    data = RankingDataModule(builtin="synthetic-groups")
    train, vali = data.splits.train, data.splits.vali
    ranker = rs.LinearRanker(loss=rs.StructuredHingeLoss("diverse_nDCG@5", reference="ideal"), C=[0.1, 1.0])
    ranker.fit(  # with its convex bound, which is lowest at 0 for the one C
        *(train.features, train.labels, train.list_numbers),
        diversity_groups=train.diversity_groups,
        X_valid=vali.features,
        y_valid=vali.labels,
        qid_valid=vali.list_numbers,
        diversity_groups_valid=vali.diversity_groups,
    )
    module = RankingModule(ranker.to_scorer(), ranker.loss, measures=["diverse_nDCG@5"])
    run = trainer(tmp_path, 1)
    run.validate(module, data, verbose=False)
    best = max(ranker.validation_)
    assert run.callback_metrics["val/diverse_nDCG@5"].item() == pytest.approx(best, abs=1e-5)
    module.regularization = 1 / ranker.C_
    objective = module.objective(data.objective_batches())
    assert objective == pytest.approx(ranker.solution_.objective, rel=1e-4)
