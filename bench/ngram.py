"""Perplexity of an n-gram model on the tokens and the held-out documents of a language model's run.

    python bench/ngram.py RUN [--order 5] [--json result.json]

RUN is the folder of `glassformer train --task lm`: the model is counted on its training store and measured on its
validation store, with the same vocabulary and the same ends of documents. The model is interpolated Kneser-Ney with
three discounts for each order (Chen & Goodman 1999, sections 3 and 4.1.6), down to a uniform distribution over the
vocabulary:

    p_k(w | h) = max(c_k(hw) - D_k(c), 0) / sum_v c_k(hv) + gamma_k(h) p_{k-1}(w | h')

with c the counts for the highest order and, below it, the number of different tokens before the n-gram (the counts
for n-grams at the start of a document, before which nothing else can stand).
"""

from __future__ import annotations

import argparse
import json
import math
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glassformer.data.store import TokenStore
from glassformer.text.tokenizer import Tokenizer

Ints = NDArray[np.int64]


def line_of(store: TokenStore, order: int, bos_id: int, eos_id: int) -> Ints:
    """All documents end to end, each behind order - 1 begin tokens and closed by its end."""
    n_pads = order - 1
    lengths = np.diff(store.sources.offsets)
    starts = np.cumsum(lengths + n_pads + 1) - (lengths + n_pads + 1)
    line = np.full(int((lengths + n_pads + 1).sum()), bos_id, dtype=np.int64)
    line[starts + n_pads + lengths] = eos_id
    places = np.arange(int(lengths.sum())) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    line[np.repeat(starts + n_pads, lengths) + places] = store.sources.ids
    return line


class Order:
    """The n-grams of one length: their sorted keys, discounted shares, and what their contexts leave to lower orders.

    The key of an n-gram is (number of its first n - 1 tokens among the n-grams of that length) * V + last token.
    """

    def __init__(self, keys: Ints, counts: Ints, contexts: Ints, n_contexts: int) -> None:
        self.keys = keys
        n = [int((counts == k).sum()) for k in range(5)]
        y = n[1] / max(n[1] + 2 * n[2], 1)
        steps = (k - (k + 1) * y * n[k + 1] / n[k] if n[k] else 0.0 for k in (1, 2, 3))
        discounts = np.array([0.0, *(min(max(step, 0.0), k) for k, step in enumerate(steps, 1))])
        discount = discounts[np.minimum(counts, 3)]
        total = np.bincount(contexts, counts, n_contexts)
        self.is_context = total > 0
        safe = np.where(self.is_context, total, 1.0)
        self.shares = (counts - discount) / safe[contexts]
        self.left = np.bincount(contexts, discount, n_contexts) / safe


class KneserNey:
    """Counts the line of the training documents; `log_probs` measures another one."""

    def __init__(self, line: Ints, *, order: int, vocab_size: int, bos_id: int, n_outcomes: int) -> None:
        self.vocab_size, self.bos_id, self.n_outcomes = vocab_size, bos_id, n_outcomes
        ids: list[Ints] = [np.zeros(len(line), dtype=np.int64)]  # number of the k-gram that ends at each place
        keys: list[Ints] = [np.zeros(1, dtype=np.int64)]
        for k in range(1, order + 1):
            unique, inverse = np.unique(_before(ids[k - 1]) * vocab_size + line, return_inverse=True)
            keys.append(unique)
            ids.append(inverse.reshape(-1).astype(np.int64))
        self.orders = [self._counted(line, ids, keys, k, is_highest=k == order) for k in range(1, order + 1)]

    def _counted(self, line: Ints, ids: list[Ints], keys: list[Ints], k: int, *, is_highest: bool) -> Order:
        n_grams = len(keys[k])
        counts = np.bincount(ids[k], minlength=n_grams)
        place = np.zeros(n_grams, dtype=np.int64)
        place[ids[k]] = np.arange(len(line))  # one of those where the k-gram ends
        if not is_highest:
            longer_place = np.zeros(len(keys[k + 1]), dtype=np.int64)
            longer_place[ids[k + 1]] = np.arange(len(line))
            different = np.bincount(ids[k][longer_place], minlength=n_grams)
            counts = np.where(line[np.maximum(place - k + 1, 0)] == self.bos_id, counts, different)
        counts[line[place] == self.bos_id] = 0  # a begin token is never predicted
        return Order(keys[k], counts, _before(ids[k - 1])[place], len(keys[k - 1]))

    def log_probs(self, line: Ints) -> NDArray[np.float64]:
        """Natural logarithms of the probabilities of all tokens but the begin tokens, in their order."""
        probs = np.full(len(line), 1.0 / self.n_outcomes)
        context = np.zeros(len(line), dtype=np.int64)  # number of the tokens before each place; -1: not seen
        for order in self.orders:
            seen = np.maximum(context, 0)
            known = (context >= 0) & order.is_context[seen]
            number = _found(order.keys, np.where(context >= 0, seen * self.vocab_size + line, -1))
            share = np.where(number >= 0, order.shares[number], 0.0)
            probs = np.where(known, share + order.left[seen] * probs, probs)
            context = _before(number)
        return np.asarray(np.log(probs[line != self.bos_id]))


def _before(values: Ints) -> Ints:
    """The value at the place before each; the first place, a begin token, has none that matters."""
    return np.concatenate([values[:1], values[:-1]])


def _found(keys: Ints, wanted: Ints) -> Ints:
    """The place of each wanted key in the sorted keys, or -1."""
    place = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    return np.where(keys[place] == wanted, place, -1)


def measure(run: Path, order: int) -> dict[str, Any]:
    """Counts and measures; perplexities as `glassformer train --task lm` defines them."""
    tokenizer = Tokenizer.load(run / "tokenizer.json")
    train, valid = (TokenStore.open(run / "data" / part) for part in ("train", "valid"))
    lines = [line_of(store, order, tokenizer.bos_id, tokenizer.eos_id) for store in (train, valid)]
    n_outcomes = tokenizer.vocab_size - len(tokenizer.never_made)
    started = time.perf_counter()
    model = KneserNey(
        lines[0], order=order, vocab_size=tokenizer.vocab_size, bos_id=tokenizer.bos_id, n_outcomes=n_outcomes
    )
    log_probs = model.log_probs(lines[1])
    texts = [tokenizer.decode(valid.src(i).tolist()) for i in range(len(valid))]
    n_words, n_bytes = sum(len(text.split()) for text in texts), sum(len(text.encode()) for text in texts)
    nll = -float(log_probs.sum())
    return {
        "order": order,
        "train_tokens": train.n_tokens + len(train),
        "n_grams": [len(some.keys) for some in model.orders],
        "documents": len(valid),
        "tokens": len(log_probs),
        "loss": nll / len(log_probs),
        "perplexity": math.exp(nll / len(log_probs)),
        "word_perplexity": math.exp(nll / n_words),
        "bits_per_byte": nll / n_bytes / math.log(2),
        "seconds": round(time.perf_counter() - started, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="folder of a language model's run")
    parser.add_argument("--order", type=int, default=5, help="tokens of the longest n-grams")
    parser.add_argument("--json", type=Path, help="file to write the result to")
    arguments = parser.parse_args()
    text = json.dumps(measure(arguments.run, arguments.order), indent=1)
    print(text)
    if arguments.json:
        arguments.json.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
