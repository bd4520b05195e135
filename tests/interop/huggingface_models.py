"""Tiny random models of transformers with unusual fields, and tiny tokenizers, each saved as a folder."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"  # before the import: nothing is ever downloaded

import sentencepiece
import tokenizers
import torch
import transformers
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors, trainers

transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()

TEXTS = [
    "the cat sat on the mat",
    "We eat bread, and they don't drink water!",
    "hello world hello",
    "a",
    "Über façade naïve 12345 (test) e-mail",
]
CORPUS = [*TEXTS, "the quick brown fox jumps over the lazy dog", "lower case and Upper Case letters", "numbers 0 1 2 3"] * 4


def randomize(model: Any, seed: int = 0, scale: float = 0.25) -> Any:
    """Random numbers in every parameter and in the bias of the logits, so that none is 0 or 1 and outputs differ."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        named = [*model.named_parameters(), *((n, b) for n, b in model.named_buffers() if n == "final_logits_bias")]
        for name, tensor in named:
            if "embed_positions" in name and tensor.requires_grad is False:
                continue  # sinusoids
            tensor.add_(scale * torch.randn(tensor.shape, generator=generator))
    return model.eval()


def wordpiece_folder(path: Path) -> int:
    """A BERT tokenizer by its own class, saved; returns the size of its vocabulary."""
    library = tokenizers.Tokenizer(models.WordPiece(unk_token="[UNK]"))
    library.normalizer = normalizers.BertNormalizer(lowercase=True)
    library.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    library.train_from_iterator(CORPUS, trainers.WordPieceTrainer(vocab_size=90, special_tokens=special))
    vocab = library.get_vocab()
    path.mkdir(parents=True, exist_ok=True)
    transformers.BertTokenizer(vocab=vocab).save_pretrained(path)
    return len(vocab)
