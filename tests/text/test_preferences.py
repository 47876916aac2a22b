"""Ranking losses in TRL's trainers: with two responses the values of TRL's own, with more those of the loss alone."""

import re
from pathlib import Path

import pytest
import torch

import rankstruct as rs

pytestmark = [pytest.mark.slow, pytest.mark.needs("trl"), pytest.mark.filterwarnings("ignore::FutureWarning")]

PAIRS = [("a b", " c d e", " f"), ("a", " g", " h h")] * 4
TIES = [
    {"prompt": "a b", "completions": [" c d e", " f", " g g", " h"], "labels": [2, 1, 1, 0]},
    {"prompt": "a", "completions": [" g", " h h"], "labels": [1, 0]},
    {"prompt": "c", "completions": [" a", " b b b", " d"], "labels": [1, 1, 0]},
] * 4


@pytest.fixture(autouse=True)
def offline(monkeypatch):
    monkeypatch.setenv("CI", "1")  # TRL reports its use otherwise
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)


@pytest.fixture(scope="module")
def tokenizer():
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = {word: at for at, word in enumerate(["<pad>", "<eos>", "<unk>", *"abcdefgh"])}
    made = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    parts = [pre_tokenizers.Split("<eos>", "isolated"), pre_tokenizers.Split(" ", "removed")]
    made.pre_tokenizer = pre_tokenizers.Sequence(parts)
    return PreTrainedTokenizerFast(tokenizer_object=made, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>")


def make(base, loss, rows, folder, tokenizer, seed=0, **options):
    """A trainer of TRL, with the loss if there is one."""
    import transformers
    import trl
    from datasets import Dataset

    def model(seed):
        torch.manual_seed(seed)
        ends = {"bos_token_id": 1, "eos_token_id": 1, "pad_token_id": 0}
        kind = {"DPOTrainer": "GPT2LMHeadModel", "RewardTrainer": "GPT2ForSequenceClassification"}[base]
        config = transformers.GPT2Config(vocab_size=11, n_positions=16, n_embd=16, n_layer=2, n_head=2, **ends)
        config.num_labels = 1
        return getattr(transformers, kind)(config)

    options = {"max_steps": 4, "save_strategy": "no", **options}
    quiet = {"report_to": "none", "disable_tqdm": True, "use_cpu": True, "bf16": False, "logging_steps": 1}
    kind = getattr(trl, base.replace("Trainer", "Config"))
    args = kind(str(folder), per_device_train_batch_size=3, learning_rate=0.01, **quiet, **options)
    reference = {"ref_model": model(1)} if base == "DPOTrainer" else {}
    trainer = getattr(trl, base) if loss is None else rs.text.listwise_trainer(loss, base)
    return trainer(
        model=model(seed), args=args, train_dataset=Dataset.from_list(rows), processing_class=tokenizer, **reference
    )


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_the_examples_of_the_guide_run_as_written(tokenizer, tmp_path, monkeypatch):
    import transformers

    monkeypatch.chdir(tmp_path)
    tokenizer.save_pretrained("tiny")
    ends = {"bos_token_id": 1, "eos_token_id": 1, "pad_token_id": 0}
    config = transformers.GPT2Config(vocab_size=11, n_positions=16, n_embd=16, n_layer=2, n_head=2, **ends)
    transformers.GPT2LMHeadModel(config).save_pretrained("tiny")
    guide = Path(__file__).parents[2] / "docs" / "guides" / "other-models.md"
    section = guide.read_text(encoding="utf-8").partition("## TRL")[2].partition("\n## ")[0]
    names = {}
    for code in re.findall(r"^```\n(.*?)^```", section, re.DOTALL | re.MULTILINE):
        code, changed = re.subn(r"\),  # without a GPU also (bf16=False)", r", \1),", code)
        assert changed == 1
        exec(code.replace('"..."', "'tiny'"), names)
    names["trainer"].train()  # of the reward model
    assert names["trainer"].state.global_step == 3


def step(trainer, batch):
    """Loss and gradient of one batch."""
    trainer.model.train()
    trainer.model.zero_grad()
    value = trainer.compute_loss(trainer.model, batch)
    value.backward()
    return value.detach(), [weight.grad.clone() for weight in trainer.model.parameters() if weight.grad is not None]


@pytest.mark.parametrize("base", ["DPOTrainer", "RewardTrainer"])
def test_two_responses_and_the_logistic_loss_are_trls_own(base, tokenizer, tmp_path):
    pairs = [{"prompt": prompt, "chosen": chosen, "rejected": rejected} for prompt, chosen, rejected in PAIRS]
    lists = [
        {"prompt": each["prompt"], "completions": [each["rejected"], each["chosen"]], "labels": [0, 1]}
        for each in pairs
    ]
    theirs = make(base, None, pairs, tmp_path, tokenizer)
    ours = make(base, rs.RankNetLoss(), lists, tmp_path, tokenizer)
    batches = [next(iter(each.get_train_dataloader())) for each in (theirs, ours)]
    found = [step(*each) for each in zip((theirs, ours), batches, strict=True)]
    for one, other in zip(found[0][1], found[1][1], strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-6)
    torch.testing.assert_close(found[0][0], found[1][0], rtol=0, atol=1e-6)
    for each in (theirs, ours):
        each.train()
    logged = [[row["loss"] for row in each.state.log_history if "loss" in row] for each in (theirs, ours)]
    assert logged[0] == pytest.approx(logged[1], abs=1e-6)


@pytest.mark.parametrize("loss", [rs.ListMLELoss(), rs.StructuredHingeLoss("nDCG@10")], ids=["PL", "hinge"])
@pytest.mark.parametrize("base", ["DPOTrainer", "RewardTrainer"])
def test_lists_with_ties_of_unequal_length(base, loss, tokenizer, tmp_path):
    """The values are those of the loss on scores of responses that are alone in the model."""
    trainer = make(base, loss, TIES, tmp_path, tokenizer)
    batch = trainer.data_collator([trainer.train_dataset[at] for at in range(3)])
    assert batch["grades"].tolist() == [[2, 1, 1, 0], [1, 0, -100, -100], [1, 1, 0, -100]]

    def score(model, prompt, completion):
        (ids,) = tokenizer([prompt + completion + "<eos>"], return_tensors="pt")["input_ids"]
        first = len(tokenizer(prompt)["input_ids"])
        logits = model(ids[None]).logits[0]
        if base == "RewardTrainer":
            return logits[0]
        each = logits[:-1].log_softmax(-1)
        return each.gather(-1, ids[1:, None])[first - 1 :].sum()

    alone, shares = [], []
    for row in TIES[:3]:
        models = [trainer.model] if base == "RewardTrainer" else [trainer.model, trainer.ref_model]
        found = [torch.stack([score(each, row["prompt"], text) for text in row["completions"]]) for each in models]
        scores = found[0] if base == "RewardTrainer" else 0.1 * (found[0] - found[1])
        alone.append(loss(scores, torch.tensor(row["labels"])))
        pairs = [(one, other) for one in range(len(scores)) for other in range(len(scores))]
        above = [scores[one] > scores[other] for one, other in pairs if row["labels"][one] > row["labels"][other]]
        shares.append(float(sum(above)) / len(above))
    torch.testing.assert_close(step(trainer, batch)[0], torch.stack(alone).mean().detach(), rtol=1e-5, atol=1e-6)
    assert trainer._metrics["train"]["rewards/accuracies"] == pytest.approx([sum(shares) / 3])
    batch["grades"][1, 1] = 1  # no pair with different grades
    step(trainer, batch)
    assert trainer._metrics["train"]["rewards/accuracies"][1] == pytest.approx((shares[0] + shares[2]) / 2)


def test_a_run_is_resumed_exactly(tokenizer, tmp_path):
    saved = {"save_strategy": "steps", "save_steps": 2, "max_steps": 4}
    whole = make("DPOTrainer", rs.ListMLELoss(), TIES, tmp_path, tokenizer, **saved)
    whole.train()
    accuracy = [row["rewards/accuracies"] for row in whole.state.log_history if "loss" in row]
    assert len(accuracy) == 4
    assert all(0 <= each <= 1 for each in accuracy)
    again = make("DPOTrainer", rs.ListMLELoss(), TIES, tmp_path, tokenizer, seed=5, **saved)
    again.train(resume_from_checkpoint=str(tmp_path / "checkpoint-2"))
    for one, other in zip(whole.model.parameters(), again.model.parameters(), strict=True):
        assert torch.equal(one, other)


def test_an_evaluation_is_a_mean_over_lists(tokenizer, tmp_path):
    """Also of a data set that is not the trainer's."""
    from datasets import Dataset

    trainer = make("RewardTrainer", rs.LambdaLoss(), TIES, tmp_path, tokenizer, per_device_eval_batch_size=2)
    found = trainer.evaluate(Dataset.from_list(TIES[:3]))
    one = make("RewardTrainer", rs.LambdaLoss(), TIES, tmp_path, tokenizer, per_device_eval_batch_size=3)
    assert found["eval_loss"] == pytest.approx(one.evaluate(Dataset.from_list(TIES[:3]))["eval_loss"], abs=1e-6)
    assert 0 <= found["eval_rewards/accuracies"] <= 1


@pytest.mark.parametrize(
    ("rows", "options", "message"),
    [
        (TIES, {"loss_type": ["ipo"]}, "leave loss_type at the default"),
        (TIES, {"label_smoothing": 0.1}, "leave label_smoothing at the default"),
        ([{"prompt": "a", "chosen": " b", "rejected": " c"}], {}, "has no completions, labels"),
        (TIES, {"loss_weights": [2.0]}, "leave loss_weights at the default"),
        (
            [{**TIES[0], "completions": [], "labels": []}],
            {},
            "must have completions with a label each, a finite number and not -100; row 0",
        ),
        ([{**TIES[1], "labels": [1, -100]}], {}, "with a label each, a finite number and not -100; row 0"),
        ([{**TIES[1], "labels": [1, None]}], {}, r"finite number and not -100; row 0 has .* and labels \[1, None\]"),
        ([{**TIES[1], "labels": [1.0, float("nan")]}], {}, "finite number and not -100; row 0"),
        ([{**TIES[1], "labels": ["1", "0"]}], {}, "finite number and not -100; row 0"),
        ([{**TIES[0], "labels": [1]}], {}, "with a label each, a finite number and not -100; row 0"),
    ],
)
def test_what_it_refuses(rows, options, message, tokenizer, tmp_path):
    with pytest.raises(ValueError, match=message):
        make("DPOTrainer", rs.RankNetLoss(), rows, tmp_path, tokenizer, **options)


def test_it_refuses_other_trainers():
    with pytest.raises(TypeError, match="trainer must be 'DPOTrainer' or 'RewardTrainer'"):
        rs.text.listwise_trainer(rs.RankNetLoss(), "SFTTrainer")
    with pytest.raises(TypeError, match="loss must be a ranking loss"):
        rs.text.listwise_trainer("nDCG")
    with pytest.raises(ValueError, match="would not train the parameters of the loss, sigma: "):
        rs.text.listwise_trainer(rs.SmoothLoss("nDCG@10", sigma=torch.nn.Parameter(torch.tensor(1.0))))


def test_without_trl_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "trl", None)
    with pytest.raises(ImportError, match=r"trl is not installed: pip install 'rankstruct\[preferences\]'"):
        rs.text.listwise_trainer()
