"""A small text collection in files."""

import json
from pathlib import Path


def write_collection(folder: Path) -> Path:
    """Write a small collection, the built-in one without some of its queries; returns the folder."""
    from rankstruct.text import questions

    collection = questions()
    folder.mkdir()
    for name, texts in (("corpus", collection.documents), ("queries", collection.queries)):
        lines = [json.dumps({"_id": key, "text": text}) for key, text in texts.items()]
        (folder / f"{name}.jsonl").write_text("\n".join(lines) + "\n")
    for part, count in (("train", 20), ("test", 8)):
        judged = list(collection.judgements[part].items())[:count]
        lines = ["query-id\tcorpus-id\tscore", *(f"{q}\t{d}\t{g:g}" for q, of in judged for d, g in of.items())]
        (folder / f"qrels_{part}.tsv").write_text("\n".join(lines) + "\n")
    return folder
