"""A small synthetic collection and a small encoder, to try everything in seconds, without a network."""

from __future__ import annotations

import itertools
import random
from pathlib import Path
from typing import Any

from rankstruct.messages import import_extra
from rankstruct.text.collection import Collection
from rankstruct.text.encoder import ENCODERS, quietly

__all__ = ["questions", "tiny_encoder"]

_THINGS = ("bridge", "tower", "mill", "library", "harbour", "theatre", "school", "station")
_PLACES = [
    first + last
    for first in ("Ar", "Bel", "Cor", "Dun", "Fal", "Gil", "Hol", "Mar")
    for last in ("den", "lon", "wick", "sby")
]
_NAMES = ("Anna Berg", "Otto Lind", "Ines Faro", "Karl Moss", "Mira Vance", "Jon Ekman", "Lea Prior", "Tom Haro")
_RIVERS = ("Oda", "Lim", "Vere", "Tarn", "Isk", "Nor")
#: Questions about a building, and sentences that answer them.
_TEMPLATES: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "time": (
        ("when was the {it} finished ?", "in which year did the {it} open ?"),
        ("the {it} was finished in {year} after a long delay", "people first entered the {it} in {year}"),
    ),
    "person": (
        ("who designed the {it} ?", "which architect drew the {it} ?"),
        ("the {it} is the work of {name} and two pupils", "{name} drew the plans of the {it}"),
    ),
    "place": (
        ("where does the {it} stand ?", "beside which river is the {it} ?"),
        ("the {it} lies on the bank of the {river}", "from the {it} one looks down on the river {river}"),
    ),
    "cost": (
        ("how much did the {it} cost ?", "what was paid for the {it} ?"),
        (
            "the {it} took {number} thousand crowns of public money",
            "the town gave {number} thousand crowns for the {it}",
        ),
    ),
}


def questions(seed: int = 0) -> Collection:
    """A collection of 96 buildings with 8 sentences each, and 192 questions about them, each answered by two sentences.

    All sentences about a building share its name with the question, so that BM25 finds them all but cannot identify the answers:
    a model has to learn which kind of sentence answers which kind of question. Half of the questions are for training, a quarter
    each for validation and test, about different buildings.

    >>> collection = questions()
    >>> len(collection.documents), {part: len(each) for part, each in collection.judgements.items()}
    (768, {'train': 96, 'vali': 48, 'test': 48})
    """
    rng = random.Random(seed)
    every = [f"{place} {thing}" for place, thing in itertools.product(_PLACES, _THINGS)]
    documents: dict[str, str] = {}
    queries: dict[str, str] = {}
    judgements: dict[str, dict[str, dict[str, float]]] = {"train": {}, "vali": {}, "test": {}}
    for number, it in enumerate(rng.sample(every, 96)):
        answers: dict[str, list[str]] = {}
        for kind, (_, sentences) in _TEMPLATES.items():
            for sentence in sentences:
                answers.setdefault(kind, []).append(f"d{len(documents)}")
                documents[f"d{len(documents)}"] = sentence.format(
                    it=it,
                    year=rng.randint(1700, 1999),
                    name=rng.choice(_NAMES),
                    river=rng.choice(_RIVERS),
                    number=rng.randint(10, 900),
                )
        part = "train" if number < 48 else "vali" if number < 72 else "test"
        for kind in rng.sample(list(_TEMPLATES), 2):
            name = f"q{len(queries)}"
            queries[name] = rng.choice(_TEMPLATES[kind][0]).format(it=it)
            judgements[part][name] = dict.fromkeys(answers[kind], 1.0)
    return Collection(documents, queries, judgements)


def tiny_encoder(collection: Collection, folder: str | Path, seed: int = 0) -> Path:
    """Save an untrained encoder with two small layers and the vocabulary of a collection, in transformers' format."""
    import_extra("transformers", *ENCODERS)
    import torch
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
    from transformers import BertConfig, BertForSequenceClassification, PreTrainedTokenizerFast

    splitter = pre_tokenizers.Sequence([pre_tokenizers.Whitespace(), pre_tokenizers.Digits(individual_digits=True)])
    texts = [*collection.documents.values(), *collection.queries.values()]
    words = sorted({word for text in texts for word, _ in splitter.pre_tokenize_str(text.lower())})
    special = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")
    vocabulary = {word: at for at, word in enumerate([*special, *words])}
    tokenizer: Any = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer, tokenizer.pre_tokenizer = normalizers.Lowercase(), splitter
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    named = dict(zip(("pad_token", "unk_token", "cls_token", "sep_token"), special, strict=True))
    inputs = ["input_ids", "token_type_ids", "attention_mask"]
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, model_max_length=64, model_input_names=inputs, **named
    ).save_pretrained(str(folder))
    config: Any = BertConfig(
        vocab_size=len(vocabulary),
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=128,
        max_position_embeddings=64,
        pad_token_id=0,
    )
    config.num_labels = 1
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        quietly(BertForSequenceClassification(config).save_pretrained, str(folder))
    return Path(folder)
