"""Each export of a translator, and our own int8, against the translator: same outputs, ties, BLEU, speed.

    python bench/exports.py MODEL DATA.tsv --rows 500 [--only ctranslate2 ...] [--work FOLDER]

DATA has the source in its first column and the reference in its second. Search is the one saved with the model.
Exports are written into the working folder once and kept, and so are the outputs of each way, so that a run that was
broken off goes on.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import sacrebleu
import torch

from glassformer.interop.ctranslate2_translator import CTranslate2Translator
from glassformer.interop.export import export
from glassformer.interop.onnx_decoding import OnnxTranslator
from glassformer.model import EncoderDecoder
from glassformer.model.quantized import with_precision
from glassformer.tasks.model_folder import ModelFolder, load_model_folder
from glassformer.tasks.translator import Translator

WAYS = ("float32", "bf16", "int8", "ctranslate2", "ctranslate2-int8", "onnx", "onnx-int8")


def translator_of(way: str, folder: ModelFolder, work: Path, n_threads: int) -> Translator:
    """The translator that runs one way, exported first where that is needed."""
    translator = Translator.of(folder)
    if way in ("float32", "bf16", "int8"):
        assert isinstance(folder.model, EncoderDecoder)
        translator.model = with_precision(folder.model, way)  # type: ignore[arg-type]
        return translator
    to, _, quantize = way.partition("-")
    if not (work / way).exists():
        export(folder, work / way, to=to, quantize=quantize or None, say=print)  # type: ignore[arg-type]
    kind = CTranslate2Translator if to == "ctranslate2" else OnnxTranslator
    return kind.over(work / way, folder, n_threads=n_threads)


def outputs_of(way: str, folder: ModelFolder, sources: list[str], work: Path, n_threads: int) -> dict[str, Any]:
    """Texts, ids, scores and time of one way, from the working folder where they are there already."""
    kept = work / f"{way}.json"
    if not kept.exists():
        translator = translator_of(way, folder, work, n_threads)
        start = time.perf_counter()
        found = translator.translate(sources)
        content = {
            "seconds": time.perf_counter() - start,
            "texts": [t.text for t in found],
            "ids": [t.ids for t in found],
            "scores": [t.score for t in found],
        }
        kept.write_text(json.dumps(content), encoding="utf-8")
    outputs: dict[str, Any] = json.loads(kept.read_text(encoding="utf-8"))
    return outputs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("data", type=Path)
    parser.add_argument("--rows", type=int, default=500)
    parser.add_argument("--only", nargs="*", choices=WAYS, default=list(WAYS))
    parser.add_argument("--work", type=Path, default=Path("exports"))
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    options.work.mkdir(parents=True, exist_ok=True)
    rows = [line.split("\t") for line in options.data.read_text(encoding="utf-8").splitlines()[: options.rows]]
    sources, references = [row[0] for row in rows], [row[1] for row in rows]
    folder = load_model_folder(options.model)
    base = outputs_of("float32", folder, sources, options.work, options.threads)
    print(f"{len(rows)} rows, {options.threads} thread(s)")
    print(f"{'way':18} {'same output':>12} {'BLEU':>7} {'difference':>11} {'seconds':>8}")
    for way in options.only:
        other = outputs_of(way, folder, sources, options.work, options.threads)
        same = [a == b for a, b in zip(base["ids"], other["ids"], strict=True)]
        bleu = [sacrebleu.corpus_bleu(part["texts"], [references]).score for part in (base, other)]
        print(
            f"{way:18} {sum(same):5} {sum(same) / len(same):6.1%} {bleu[1]:7.2f} {bleu[1] - bleu[0]:+11.2f} "
            f"{other['seconds']:8.1f}"
        )
        gaps = [(a - b, i) for i, (a, b) in enumerate(zip(base["scores"], other["scores"], strict=True)) if not same[i]]
        if way in ("ctranslate2", "onnx"):  # a score that is as good is a tie; a lower one a hypothesis not found
            for gap, i in sorted(gaps, reverse=True):
                print(f"    row {i}: our score is better by {gap:.2g}: {sources[i][:60]!r}")


if __name__ == "__main__":
    main()
