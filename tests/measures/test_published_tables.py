"""The numbers of others: the LETOR tool's evaluation tables, trec_eval's expected output, the examples of a paper."""

import itertools
from collections import defaultdict

import pytest
import torch

from rankstruct.commands.evaluate import evaluate_run
from rankstruct.measures import evaluate
from rankstruct.metric import RankingMetric

FOLDS = range(1, 6)
TABLES = [
    (data, algorithm, table)
    for data in ("OHSUMED", "Mq2008")
    for algorithm in ("ListNet", "RankNet", "svm_rank")
    for table in ("NDCG", "MAP")
    if (algorithm, table) != ("svm_rank", "MAP")  # its scores are those of the model selected by NDCG
]


def needs(path):
    if not path.exists():
        pytest.skip(f"{path.name} is not among the real data")
    return path


def read_test_fold(path):
    """Labels and list offsets of a LETOR file; a list is a run of lines with one qid."""
    labels, qids = [], []
    with path.open() as lines:
        for line in lines:
            label, qid = line.split(maxsplit=2)[:2]
            labels.append(float(label))
            qids.append(qid)
    sizes = [len(list(group)) for _, group in itertools.groupby(qids)]
    return torch.tensor(labels), torch.tensor([0, *itertools.accumulate(sizes)])


def read_test_blocks(path):
    """`{fold: {measure: value}}` of the tables under "performance on testing set"."""
    values, header, testing = defaultdict(dict), [], False
    for line in path.read_text().splitlines():
        if line.lower().startswith("performance on"):
            testing = "testing" in line
        elif testing and line.startswith("Folds"):
            header = line.split()[1:]
        elif testing and line.startswith("Fold"):
            fold, *numbers = line.split()
            values[int(fold.removeprefix("Fold"))].update(zip(header, map(float, numbers), strict=True))
    return values


@pytest.fixture(scope="module")
def test_folds(data_root):
    root = needs(data_root / "letor")
    names = {"OHSUMED": "OHSUMED", "Mq2008": "MQ2008"}
    return {
        (data, fold): read_test_fold(root / names[data] / f"Fold{fold}" / "test.txt")
        for data in names
        for fold in FOLDS
    }


@pytest.mark.parametrize(("data", "algorithm", "table"), TABLES)
def test_letor_tables(data_root, test_folds, data, algorithm, table):
    folder = needs(data_root / "letor" / "baseline_scores") / data / algorithm
    published = read_test_blocks(folder / f"eval2_{table}_{data}_{algorithm}")
    names = {"MeanNDCG": "MeanNDCG", "MAP": "AP"}
    names |= {f"NDCG@{k}": f"nDCG@{k}" for k in range(1, 11)} | {f"P@{k}": f"P@{k}" for k in range(1, 11)}
    assert sorted(published) == list(FOLDS)
    for fold in FOLDS:
        labels, offsets = test_folds[data, fold]
        lines = (folder / f"Fold{fold}" / "test_score").read_text().splitlines()
        scores = torch.tensor([float(line.split()[-1]) for line in lines if line.strip()], dtype=torch.float64)
        metric = RankingMetric(names.values(), convention="letor")
        metric.update(scores, labels, offsets=offsets)
        means = {name: value.item() for name, value in metric.compute().items()}
        assert published[fold].keys() == names.keys()
        for theirs, ours in names.items():
            assert means[ours] == pytest.approx(published[fold][theirs], abs=0.5001e-4), (fold, theirs)


def test_trec_eval(data_root):
    folder = needs(data_root / "trec_eval")
    relevance, run, expected = defaultdict(dict), defaultdict(list), {}
    for line in (folder / "qrels.test").read_text().splitlines():
        query, _, document, label = line.split()
        relevance[query][document] = float(label)
    for line in (folder / "results.test").read_text().splitlines():
        query, _, document, _, score, _ = line.split()
        run[query].append((document, float(score)))
    for line in (folder / "out.test.aq").read_text().splitlines():
        measure, query, value = line.split()
        expected[measure, query] = value
    cutoffs = (5, 10, 15, 20, 30, 100, 200, 500, 1000)
    names = {"map": "AP", "recip_rank": "RR"} | {f"P_{k}": f"P@{k}" for k in cutoffs}
    names |= {"Rprec": "Rprec", "bpref": "Bpref", "infAP": "infAP"}
    checked = 0
    for query, retrieved in run.items():
        documents, scores = zip(*retrieved, strict=True)
        labels = [relevance[query].get(document, 0.0) for document in documents]
        values = evaluate(
            torch.tensor(scores, dtype=torch.float64),
            torch.tensor(labels),
            list(names.values()),
            ties="docid",
            docids=documents,
            ideal_labels=list(relevance[query].values()),
            judged=[document in relevance[query] for document in documents],
        )
        for theirs, ours in names.items():
            assert f"{values[ours].item():.4f}" == expected[theirs, query], (query, theirs)
            checked += 1
    assert checked == len(names) * len(run) > 0


@pytest.mark.parametrize(
    ("judgements", "output", "level"), [("qrels.test", "out.test.aq", 1), ("qrels.rel_level", "out.test.aql", 2)]
)
def test_trec_eval_of_a_sample_of_judgements(data_root, judgements, output, level):
    """By the files: label -1 is in the pool and was not judged, and what the qrels do not name is outside."""
    folder = needs(data_root / "trec_eval")
    names = {"map": "AP", "Rprec": "Rprec", "bpref": "Bpref", "infAP": "infAP", "recip_rank": "RR"}
    chosen = {theirs: f"{ours}(min_relevant={level})" for theirs, ours in names.items()}
    found = evaluate_run(folder / "results.test", folder / judgements, list(chosen.values()), ties="docid")
    expected = {
        (name, query): value
        for name, query, value in (line.split(maxsplit=2) for line in (folder / output).read_text().splitlines())
    }
    for theirs, ours in chosen.items():
        for query, value in zip(found.qids, found.values[ours], strict=True):
            assert f"{value:.4f}" == expected[theirs, query], (query, theirs)


def toy_rankings(relevant, num):
    """A paper's two rankings of as many documents, from the first to the last and the other way round: labels and scores."""
    labels = torch.tensor([float(document in relevant) for document in range(1, num + 1)])
    return labels, torch.arange(num, 0.0, -1), torch.arange(1.0, num + 1)


def test_toy_rankings_of_tables_1_and_2():
    """Yue, Finley, Radlinski, Joachims, SIGIR 2007."""
    labels, *rankings = toy_rankings((1, 6, 7), 8)
    values = [evaluate(scores, labels, ["AP", "AUC"]) for scores in rankings]
    assert [value["AP"].item() for value in values] == pytest.approx([0.59, 0.51], abs=0.005)
    assert [value["AUC"].item() for value in values] == pytest.approx([0.47, 0.53], abs=0.005)


def test_toy_rankings_of_tables_3_and_4():
    """The paper's average precisions, 0.70 and 0.64, are sums over five relevant documents divided by four."""
    labels, *rankings = toy_rankings((1, 6, 7, 8, 9), 11)
    precisions = [evaluate(scores, labels, ["AP"])["AP"].item() for scores in rankings]
    assert precisions == pytest.approx([4 / 5 * 0.70, 4 / 5 * 0.64], abs=0.005)
    best = [
        max(evaluate(scores - at - 0.5, labels, ["Accuracy"])["Accuracy"].item() for at in range(12))
        for scores in rankings
    ]
    assert best == pytest.approx([0.64, 0.73], abs=0.005)
