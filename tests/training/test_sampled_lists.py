"""Long training lists are sampled for SGD alone, and the report says how many."""

from rankstruct.training import RankingDataModule


def test_samples_keep_the_relevant_and_are_counted():
    data = RankingDataModule(builtin="synthetic", max_list_size=10)
    train = data.part("train")
    train.labels[: train.offsets[9]] = 0
    kept = train.lengths[~train.same_labels()]  # what no ranking can get wrong is neither trained on nor sampled
    longer = int((kept > 10).sum())
    assert len(kept) == 91
    assert longer < (train.lengths > 10).sum()
    told = f"{longer} of {len(kept)} training lists have more than 10 documents and were subsampled each epoch"
    assert data.remarks() == [f"{told}, keeping all relevant documents"]
    loader = data.train_dataloader()
    assert loader.keep_relevant
    assert loader.sampled == longer
    every = RankingDataModule(builtin="synthetic", max_list_size=10, drop_empty=False)
    assert every.remarks()[0].startswith(f"{(train.lengths > 10).sum()} of 100 training lists")
    assert max(batch.where.shape[1] for batch in loader) == 10
    assert max(batch.where.shape[1] for batch in data.test_dataloader()) > 10
    assert "uniformly" in RankingDataModule(builtin="synthetic", max_list_size=10, keep_relevant=False).remarks()[0]
    assert RankingDataModule(builtin="synthetic").remarks() == []
