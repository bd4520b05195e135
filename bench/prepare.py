"""Prepares a corpus of millions of pairs and passes once over its batches: pairs a second and resident memory.

    python bench/prepare.py pairs.tsv.xz [--pairs 5000000] [--json result.json]

The corpus is the given data, repeated until it has that many rows. From the second time on, one word of each side is
replaced by a word of another row, so that the pairs are distinct. Each stage runs in a process of its own, so that its
peak of resident memory (ru_maxrss, mapped files included) is its own. Everything lies in a temporary folder.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

VOCAB_SIZE = 8000
BATCH_TOKENS = 4096


def write_corpus(data: str, folder: Path, n_pairs: int) -> dict[str, Any]:
    """Writes corpus.tsv, and trains tokenizer.json on the rows given."""
    from glassformer.config import TokenizerConfig
    from glassformer.text.readers import PairReader
    from glassformer.text.tokenizer import Tokenizer

    pairs = list(PairReader([data]))
    texts = (text for pair in pairs for text in (pair.src, pair.tgt))
    Tokenizer.train(texts, TokenizerConfig(), vocab_size=VOCAB_SIZE).save(folder / "tokenizer.json")
    draw = random.Random(1)
    n_words = 0
    with (folder / "corpus.tsv").open("w", encoding="utf-8") as file:
        for n in range(n_pairs):
            pair, other = pairs[n % len(pairs)], draw.choice(pairs)
            sides = pair.src.split(" "), pair.tgt.split(" ")
            if n >= len(pairs):
                for words, source in zip(sides, (other.src.split(" "), other.tgt.split(" ")), strict=True):
                    words[draw.randrange(len(words))] = draw.choice(source)
            n_words += len(sides[0])
            file.write("\t".join([*map(" ".join, sides), pair.domain or ""]) + "\n")
    return {"rows": n_pairs, "src_words_per_row": n_words / n_pairs}


def prepare_store(folder: Path) -> dict[str, Any]:
    """Reads, judges, tokenises and writes."""
    from glassformer.config import DataConfig
    from glassformer.data.prepare import prepare
    from glassformer.text.readers import PairReader
    from glassformer.text.tokenizer import Tokenizer

    tokenizer = Tokenizer.load(folder / "tokenizer.json")
    reader = PairReader([str(folder / "corpus.tsv")])
    start = time.perf_counter()
    store = prepare(reader, tokenizer, tokenizer, folder / "store", DataConfig())
    seconds = time.perf_counter() - start
    excluded = {reason: about["count"] for reason, about in store.excluded.items()}
    size_bytes = sum(about["size_bytes"] for about in store.info.files.values())
    rate = store.info.n_read / seconds
    return {
        "pairs": len(store),
        "excluded": excluded,
        "pairs_per_s": rate,
        "seconds": seconds,
        "size_bytes": size_bytes,
    }


def pass_over_batches(folder: Path) -> dict[str, Any]:
    """Opens the store, plans an epoch and makes every batch of it."""
    from glassformer.config import DataConfig
    from glassformer.data.batches import BatchPlan
    from glassformer.data.store import TokenStore

    start = time.perf_counter()
    store = TokenStore.open(folder / "store")
    opened = time.perf_counter()
    ids = {"pad_id": 0, "bos_id": 1, "eos_id": 2}
    plan = BatchPlan(store, batch_tokens=BATCH_TOKENS, sort_window=DataConfig().sort_window, seed=1, **ids)
    batches = plan.epoch(0)
    planned = time.perf_counter()
    n_real = n_padded = n_pairs = 0
    for i in range(len(batches)):
        batch = plan.batch(batches[i], batches.variant)
        n_real += batch.n_tokens + batch.n_src_tokens
        n_padded += batch.src.numel() + batch.tgt_out.numel()
        n_pairs += len(batch.rows)
    passed = time.perf_counter()
    assert n_pairs == len(store)
    return {
        "open_s": opened - start,
        "plan_s": planned - opened,
        "pass_s": passed - planned,
        "ms_per_batch": 1000 * (passed - planned) / len(batches),
        "batches": len(batches),
        "real_token_share": n_real / n_padded,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", help="pairs with two or three columns")
    parser.add_argument("--pairs", type=int, default=5_000_000, help="rows of the corpus")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    parser.add_argument("--stage", nargs=2, metavar=("NAME", "FOLDER"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.stage:
        name, folder = args.stage[0], Path(args.stage[1])
        stages = {
            "corpus": lambda: write_corpus(args.data, folder, args.pairs),
            "prepare": lambda: prepare_store(folder),
            "pass": lambda: pass_over_batches(folder),
        }
        figures = stages[name]()
        unit = 1 if sys.platform == "darwin" else 1024
        figures["cpu_s"] = time.process_time()
        figures["max_rss_mib"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**20
        print(json.dumps(figures))
        return
    result = {}
    with tempfile.TemporaryDirectory() as work:
        for stage in ("corpus", "prepare", "pass"):
            command = [sys.executable, __file__, args.data, "--pairs", str(args.pairs), "--stage", stage, work]
            result[stage] = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
            print(stage, json.dumps(result[stage], indent=1), flush=True)
    if args.json:
        args.json.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
