"""Long training lists are sampled for SGD alone, and the report says how many."""

from rankstruct.training import RankingDataModule


def test_samples_keep_the_relevant_and_are_counted():
    data = RankingDataModule(builtin="synthetic", max_list_size=10)
    longer = int((data.part("train").lengths > 10).sum())
    told = f"{longer} of 100 training lists have more than 10 documents and were sampled each epoch"
    assert data.remarks() == [f"{told}, all relevant documents among them"]
    loader = data.train_dataloader()
    assert loader.keep_relevant
    assert loader.sampled == longer - int(
        (data.part("train").select(data.part("train").same_labels()).lengths > 10).sum()
    )
    assert max(batch.where.shape[1] for batch in loader) == 10
    assert max(batch.where.shape[1] for batch in data.test_dataloader()) > 10
    assert "evenly" in RankingDataModule(builtin="synthetic", max_list_size=10, keep_relevant=False).remarks()[0]
    assert RankingDataModule(builtin="synthetic").remarks() == []
