"""The losses in other trainers: value and gradient are those of the loss on the model's scores, memory is that of a slice."""

import pytest
import torch

import rankstruct as rs

LOSSES = [
    rs.StructuredHingeLoss("AP"),
    rs.StructuredHingeLoss("nDCG@10"),
    rs.GradedLoss("AUC"),
    rs.StructuredHingeLoss("nDCG@10", feature_map="positional", reference="predicted"),
    rs.LambdaLoss(),
    rs.ListNetLoss(),
]
QUERIES = ["when was the Arden mill finished ?", "who designed the Bellon tower ?", "what was paid ?"]
LISTS = [
    ["the Arden mill was finished in 1801", "the Arden mill", "Otto Lind drew it", "crowns"],
    ["Anna Berg drew the plans of the Bellon tower", "the river Oda"],
    ["the town gave 12 thousand crowns"],
]
LABELS = [torch.tensor([1.0, 0.0, 0.0, 0.0]), torch.tensor([1.0, 0.0]), torch.tensor([1.0])]


@pytest.fixture
def model(encoder):
    from sentence_transformers import CrossEncoder

    model = CrossEncoder(encoder, num_labels=1, device="cpu")
    with torch.no_grad():  # so that scores differ
        for weight in model.parameters():
            weight.normal_(std=0.3, generator=torch.Generator().manual_seed(weight.numel()))
    return model.eval()


def gradients(model):
    found = {name: weight.grad.clone() for name, weight in model.named_parameters() if weight.grad is not None}
    model.zero_grad()
    return found


def one_by_one(model, loss):
    """Each pair alone through the model, lists of the loss alone: no padding, no slices."""
    values = []
    for query, documents, labels in zip(QUERIES, LISTS, LABELS, strict=True):
        scores = torch.cat([model(model.preprocess([(query, each)]))["scores"].view(-1) for each in documents])
        values.append(loss(scores, labels))
    return torch.stack(values).mean()


@pytest.mark.sampled(3)
@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: type(loss).__name__)
@pytest.mark.parametrize("size", [None, 1, 3])
def test_a_reranker_loss_is_that_of_the_scores(model, loss, size):
    expected = one_by_one(model, loss)
    expected.backward()
    wanted = gradients(model)
    value = rs.text.RerankerLoss(model, loss, mini_batch_size=size)([QUERIES, LISTS], LABELS)
    value.backward()
    torch.testing.assert_close(value, expected, rtol=1e-5, atol=1e-6)
    found = gradients(model)
    assert found.keys() == wanted.keys()
    for name, each in wanted.items():
        torch.testing.assert_close(found[name], each, rtol=1e-4, atol=1e-6, msg=name)


def test_dropout_is_the_same_in_both_passes(model):
    """The backward pass of a slice computes it again: with other random numbers the gradient would be another loss'."""
    model.train()
    weight = model.get_parameter(next(name for name, _ in model.named_parameters() if "classifier.weight" in name))
    loss = rs.text.RerankerLoss(model, rs.ListNetLoss(), mini_batch_size=2)

    def value():
        torch.manual_seed(3)
        return loss([QUERIES, LISTS], LABELS)

    value().backward()
    grad = weight.grad.clone()
    step, at = 1e-2, grad.abs().argmax()
    with torch.no_grad():
        weight.view(-1)[at] += step
        above = value()
        weight.view(-1)[at] -= 2 * step
        below = value()
    assert float((above - below) / (2 * step)) == pytest.approx(float(grad.view(-1)[at]), rel=0.05)


@pytest.mark.parametrize("loss", [rs.StructuredHingeLoss("AP"), rs.LambdaLoss()], ids=["hinge", "lambda"])
@pytest.mark.parametrize("labels", [[1, 1], [0, 0], [1], [2, 0]])
def test_no_list_gives_nan(model, loss, labels):
    adapter = rs.text.RerankerLoss(model, loss)
    value = adapter([["what ?"], [["the same"] * len(labels)]], [torch.tensor(labels, dtype=torch.float32)])
    value.backward()
    assert value.isfinite()
    assert all(each.isfinite().all() for each in gradients(model).values())


def test_memory_is_that_of_a_slice(encoder):
    """What autograd keeps of 256 documents in slices of 16 is little more than of 16."""

    def kept(documents, size):
        total = 0

        def count(tensor):
            nonlocal total
            total += tensor.numel() * tensor.element_size()
            return tensor

        scorer = rs.text.CrossEncoderScorer(encoder, documents_at_once=size)
        rows = torch.randint(4, 30, (1, documents, 32)).float()
        with torch.autograd.graph.saved_tensors_hooks(count, lambda tensor: tensor):
            scorer(rows)
        return total

    assert kept(256, 16) < kept(16, None) < kept(256, None) / 8


def test_the_model_comes_first(model):
    with pytest.raises(TypeError, match=r"RetrievalLoss expects a SentenceTransformer; .* use RerankerLoss"):
        rs.text.RetrievalLoss(model)
    for adapter in (rs.text.RerankerLoss, rs.text.TrainerLoss):
        with pytest.raises(TypeError, match=r"loss must be a ranking loss, such as .*; got 'AP'"):
            adapter(*((model,) if adapter is rs.text.RerankerLoss else ()), "AP")
    with pytest.raises(TypeError, match="expects a CrossEncoder and a loss, in this order"):
        rs.text.RerankerLoss(rs.ListNetLoss(), model)


@pytest.mark.parametrize(
    ("inputs", "labels", "message"),
    [
        ([QUERIES, LISTS], torch.zeros(3), "a query, a list of documents and a list of labels"),
        ([QUERIES], LABELS, "got 1 columns"),
        ([QUERIES[:2], ["a", "b"]], LABELS[2:] * 2, r"got a string \(for one document, pass \[text\]\)"),
        ([QUERIES[:2], [[], []]], [torch.zeros(0)] * 2, "all 2 lists are empty"),
        ([[], []], [], "a batch must have at least one document"),
        ([QUERIES, LISTS], [*LABELS[:2], torch.zeros(2)], "list 2 has 1 documents, but 2 labels"),
    ],
)
def test_inputs_that_are_no_lists_are_refused(model, inputs, labels, message):
    with pytest.raises(ValueError, match=message):
        rs.text.RerankerLoss(model)(inputs, labels)


def test_what_a_model_card_asks(model):
    loss = rs.text.RerankerLoss(model, rs.LambdaLoss())
    assert "LambdaLoss" in loss.get_config_dict()["loss"]
    assert "@misc{rankstruct" in loss.citation


def examples():
    return [
        {"query": query, "docs": documents, "labels": labels.tolist()}
        for query, documents, labels in zip(QUERIES, LISTS, LABELS, strict=True)
    ]


@pytest.mark.parametrize("loss", LOSSES[:3], ids=lambda loss: type(loss).__name__)
def test_a_trainer_loss_is_that_of_the_scores(model, encoder, loss):
    expected = one_by_one(model, loss)
    batch = rs.text.ListCollator(rs.text.load_tokenizer(encoder))(examples())
    labels = batch.pop("labels")
    assert labels.tolist()[1] == [1.0, 0.0, -100.0, -100.0]
    value = rs.text.TrainerLoss(loss)(model.model(**batch), labels)
    torch.testing.assert_close(value, expected, rtol=1e-5, atol=1e-6)


def test_what_a_collator_refuses(encoder):
    collate = rs.text.ListCollator(rs.text.load_tokenizer(encoder))
    with pytest.raises(ValueError, match="example 0 has no docs, query"):
        collate([{"labels": [1]}])
    with pytest.raises(ValueError, match="list 1 has 1 documents, but 2 labels"):
        collate([{"query": "a", "docs": ["b"], "labels": [1]}, {"query": "a", "docs": ["b"], "labels": [1, 0]}])
    with pytest.raises(ValueError, match="a batch must have at least one document"):
        collate([])
    with pytest.raises(ValueError, match=r"cannot encode these pairs: .*; try a larger max_length"):
        collate([{"query": "a " * 400, "docs": ["b"], "labels": [1]}])
    with pytest.raises(ValueError, match="one output per document"):
        rs.text.TrainerLoss()(torch.zeros(3, 2), torch.zeros(1, 3))
    with pytest.raises(ValueError, match="a batch must have labels, as from ListCollator"):
        rs.text.TrainerLoss()(torch.zeros(3, 1), None)
    with pytest.raises(ValueError, match=r"the trainer would not train the parameters of the loss, first, steps"):
        rs.text.TrainerLoss(rs.OrdinalLoss(3))
    for wrong, told in (
        ({"query": None}, "query and docs must be text; example 0 has None"),
        ({"docs": ["b", None]}, "query and docs must be text; example 0 has None"),
        ({"labels": [1, None]}, r"labels must be numbers, one per document; example 0 has \[1, None\]"),
        ({"labels": None}, "labels must be numbers, one per document; example 0 has None"),
        ({"labels": [1, -100]}, r"labels must not be -100, which is padding; example 0 has \[1.0, -100.0\]"),
    ):
        with pytest.raises(ValueError, match=told):
            collate([{"query": "a", "docs": ["b", "c"], "labels": [1, 0], **wrong}])
    for options in ({"max_length": 0}, {"max_length": 9.5}, {"in_batch_negatives": True}):
        with pytest.raises(ValueError, match="must be an integer from"):
            rs.text.ListCollator(collate.tokenizer, **options)


@pytest.mark.slow
def test_sentence_transformers_trains_with_it(encoder, collection, tmp_path):
    from datasets import Dataset
    from sentence_transformers import CrossEncoder
    from sentence_transformers.cross_encoder import CrossEncoderTrainer, CrossEncoderTrainingArguments

    model = CrossEncoder(encoder, num_labels=1, device="cpu")
    lists = rs.text.TextSource(builtin="questions", depth=12, max_length=48).read()
    queries, documents, labels = rs.text.candidate_lists(lists.judged[0], lists.run, 12)
    data = Dataset.from_dict(
        {
            "query": [collection.queries[each] for each in queries],
            "docs": [[collection.documents[name] for name in names] for names in documents],
            "labels": labels,
        }
    )
    loss = rs.text.RerankerLoss(model, rs.StructuredHingeLoss("AP"))

    def mean_loss():
        model.eval()
        with torch.no_grad():
            batch = data[:32]
            return float(loss([batch["query"], batch["docs"]], [torch.tensor(each) for each in batch["labels"]]))

    before = mean_loss()
    args = CrossEncoderTrainingArguments(
        str(tmp_path),
        num_train_epochs=5,
        per_device_train_batch_size=4,
        learning_rate=2e-3,
        report_to="none",
        save_strategy="no",
        use_cpu=True,
        disable_tqdm=True,
    )
    CrossEncoderTrainer(model=model, args=args, train_dataset=data, loss=loss).train()
    assert mean_loss() < before - 0.1


@pytest.mark.slow
def test_hugging_faces_trainer_trains_with_it(encoder, tmp_path):
    from transformers import AutoModelForSequenceClassification, Trainer, TrainingArguments

    torch.manual_seed(0)
    model = AutoModelForSequenceClassification.from_pretrained(encoder, num_labels=1)
    args = TrainingArguments(
        str(tmp_path), max_steps=20, learning_rate=3e-3, report_to="none", remove_unused_columns=False, use_cpu=True
    )
    trainer = Trainer(
        model,
        args,
        train_dataset=examples() * 8,
        data_collator=rs.text.ListCollator(rs.text.load_tokenizer(encoder)),
        compute_loss_func=rs.text.TrainerLoss(rs.StructuredHingeLoss("AP")),
    )
    trainer.train()
    assert trainer.state.log_history[-1]["train_loss"] < 0.5


def test_batches_of_a_step_are_parts_of_one_mean():
    """Hugging Face's trainer adds up what `compute_loss_func` returns for the batches between two steps."""
    labels = torch.tensor([[1.0, 0.0, 2.0], [0.0, 1.0, -100.0], [2.0, 0.0, 0.0], [1.0, 1.0, 0.0]])
    logits = torch.randn(11, 1, generator=torch.Generator().manual_seed(0))
    loss, where = rs.text.TrainerLoss(rs.SoftmaxLoss()), labels != -100
    alone = [loss(logits[part], labels[rows]) for part, rows in ((slice(0, 5), [0, 1]), (slice(5, 11), [2, 3]))]
    parts = [
        loss(logits[part], labels[rows], num_items_in_batch=where.sum())
        for part, rows in ((slice(0, 5), [0, 1]), (slice(5, 11), [2, 3]))
    ]
    torch.testing.assert_close(sum(parts), (5 * alone[0] + 6 * alone[1]) / 11)
    torch.testing.assert_close(loss(logits, labels, num_items_in_batch=11), loss(logits, labels))


@pytest.mark.slow
def test_accumulated_batches_take_the_step_of_one(encoder, tmp_path):
    from transformers import AutoModelForSequenceClassification, Trainer, TrainingArguments

    def stepped(size, batches):
        torch.manual_seed(0)
        model = AutoModelForSequenceClassification.from_pretrained(encoder, num_labels=1)
        options = {"optim": "sgd", "learning_rate": 1.0, "max_grad_norm": 0.0, "max_steps": 1, "use_cpu": True}
        sizes = {"per_device_train_batch_size": size, "gradient_accumulation_steps": batches}
        args = TrainingArguments(str(tmp_path), report_to="none", remove_unused_columns=False, **options, **sizes)
        loss, data = rs.text.TrainerLoss(rs.SoftmaxLoss()), [examples()[0]] * 4
        collator = rs.text.ListCollator(rs.text.load_tokenizer(encoder))
        model.eval().train = lambda mode=True: model  # without dropout
        Trainer(model, args, train_dataset=data, data_collator=collator, compute_loss_func=loss).train()
        return torch.nn.utils.parameters_to_vector(model.parameters()).detach()

    torch.testing.assert_close(stepped(1, 4), stepped(4, 1))


def test_negatives_of_the_batch_join_each_list(model):
    loss = rs.text.RerankerLoss(model, rs.ListNetLoss(), mini_batch_size=3, in_batch_negatives=100)
    every = [document for documents in LISTS for document in documents]
    longer = [documents + [each for each in every if each not in documents] for documents in LISTS]
    told = [torch.cat([each, torch.zeros(len(every) - len(each))]) for each in LABELS]
    expected = rs.text.RerankerLoss(model, rs.ListNetLoss())([QUERIES, longer], told)
    torch.testing.assert_close(loss([QUERIES, LISTS], LABELS), expected)
    assert loss.get_config_dict()["in_batch_negatives"] == 100
    assert [len(each) for each in LABELS] == [4, 2, 1]
    with pytest.raises(ValueError, match=r"mini_batch_size must be an integer from 1, or None, got 1\.5"):
        rs.text.RerankerLoss(model, mini_batch_size=1.5)
    with pytest.raises(ValueError, match="in_batch_negatives must be an integer from 0"):
        rs.text.RerankerLoss(model, in_batch_negatives=-1)


def test_negatives_of_the_batch_are_sampled_once(encoder):
    collate = rs.text.ListCollator(rs.text.load_tokenizer(encoder), in_batch_negatives=2)
    lists = [*examples(), {"query": "who ?", "docs": [*LISTS[0]], "labels": [0.5, 0, 0, 1]}]
    torch.manual_seed(0)
    batches = [collate(lists) for _ in range(20)]
    for each in batches:
        assert each["input_ids"].shape[0] == 6 + 4 + 3 + 6
        assert each["labels"].tolist() == [
            [1, 0, 0, 0, 0, 0],
            [1, 0, 0, 0, -100, -100],
            [1, 0, 0, -100, -100, -100],
            [0.5, 0, 0, 1, 0, 0],
        ]
    assert len({str(each["input_ids"].tolist()) for each in batches}) > 5
    alone = collate([lists[0]])  # no others, no negatives
    assert alone["labels"].tolist() == [[1, 0, 0, 0]]


def test_a_retrieval_loss_is_that_of_similarities(encoder):
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(encoder, device="cpu").eval()
    loss = rs.text.RetrievalLoss(model, rs.RankNetLoss(), temperature=0.1)
    features = [model.preprocess([each[0] for each in LISTS]), model.preprocess(QUERIES)]
    documents, queries = (model(dict(each))["sentence_embedding"] for each in features)
    similarities = torch.cosine_similarity(queries.unsqueeze(1), documents.unsqueeze(0), dim=-1) / 0.1
    expected = rs.RankNetLoss()(similarities, torch.eye(3))
    torch.testing.assert_close(loss(features[::-1]), expected, rtol=1e-4, atol=1e-5)
    with pytest.raises(ValueError, match="got one column"):
        loss(features[:1])
