"""Translation, log-probabilities and features by CTranslate2, from an exported folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from typing_extensions import Self

from glassformer.config import GenerationConfig
from glassformer.generation.hypothesis import Hypothesis, LengthPenalty
from glassformer.interop.ctranslate2 import vocabulary
from glassformer.interop.refusal import require_extra
from glassformer.tasks.model_folder import ModelFolder
from glassformer.tasks.translator import Translation, Translator

if TYPE_CHECKING:
    import ctranslate2

__all__ = ["CTranslate2Translator", "ctranslate2_log_probs", "ctranslate2_translations", "search_options"]

# CTranslate2 stops when it has beam_size * patience ended hypotheses. With 2, what it finds holds the one that scores
# best under a length penalty that it does not have.
PATIENCE = 2


def search_options(generation: GenerationConfig, forbidden: Sequence[str]) -> dict[str, Any]:
    """The arguments of `translate_batch` for a search as `generation` means it, but for the limit of each text.

    Its own length penalty is off, so that scores are summed log-probabilities: the best hypothesis is chosen from
    them by glassformer's penalty.
    """
    is_beam = generation.beam_size > 1
    return {
        "beam_size": generation.beam_size,
        "patience": PATIENCE if is_beam else 1,
        "num_hypotheses": generation.beam_size * PATIENCE if is_beam else 1,
        "length_penalty": 0,
        "min_decoding_length": generation.min_new_tokens,
        "repetition_penalty": generation.repetition_penalty,
        "no_repeat_ngram_size": generation.no_repeat_ngram_size,
        "suppress_sequences": [[token] for token in forbidden],
        "max_input_length": 0,
        "return_scores": True,
        "return_end_token": True,
    }


class CTranslate2Translator(Translator):
    """A `Translator` whose search is CTranslate2's; cutting into segments, limits and penalty are as ever.

    Sampling is not repeated: its draws would be others.
    """

    engine: ctranslate2.Translator
    src_names: list[str]
    names: list[str]

    @classmethod
    def over(cls, export: Path, folder: ModelFolder, *, n_threads: int = 0) -> Self:
        """Loads the export of a model; `n_threads` 0 leaves the number to CTranslate2."""
        require_extra("ctranslate2")
        import ctranslate2

        translator = cls.of(folder)
        translator.engine = ctranslate2.Translator(str(export), device="cpu", intra_threads=n_threads)
        config = folder.config.model
        translator.names = vocabulary(folder.tokenizer, config.vocab_size)
        translator.src_names = vocabulary(folder.src_tokenizer, config.source_vocab_size)
        return translator

    def _decode(
        self, sources: list[list[int]], texts: list[str], generation: GenerationConfig
    ) -> list[list[Hypothesis]]:
        limits = [self.limit(len(source), generation) for source in sources]
        options = search_options(generation, [self.names[i] for i in self.forbidden_ids])
        ids_of = {name: i for i, name in enumerate(self.names)}
        penalty = LengthPenalty(generation.length_penalty, generation.alpha)
        found: list[list[Hypothesis]] = [[] for _ in sources]
        forced = [] if generation.forced_bos_id is None else [self.names[generation.forced_bos_id]]
        for limit in sorted(set(limits)):  # its limit is one for a whole call
            items = [item for item, own in enumerate(limits) if own == limit]
            batch = [[self.src_names[i] for i in sources[item]] for item in items]
            prefixes = [forced] * len(items)
            results = self.engine.translate_batch(batch, prefixes, max_decoding_length=limit, **options)
            for item, result in zip(items, results, strict=True):
                made = [[ids_of[name] for name in names] for names in result.hypotheses]
                scored = [
                    self._hypothesis(item, ids, score, penalty) for ids, score in zip(made, result.scores, strict=True)
                ]
                found[item] = sorted(scored, key=lambda hypothesis: -hypothesis.score)[: generation.n_best]
        return found

    def _hypothesis(self, item: int, ids: list[int], log_prob: float, penalty: LengthPenalty) -> Hypothesis:
        return Hypothesis(
            item=item,
            ids=ids,
            token_log_probs=[],  # it gives their sum
            log_prob=log_prob,
            score=log_prob / penalty(len(ids)),
            finish_reason="eos" if ids[-1:] == [self.tokenizer.eos_id] else "length",
        )


def ctranslate2_translations(
    export: Path,
    folder: ModelFolder,
    texts: Sequence[str],
    *,
    generation: GenerationConfig | None = None,
    n_threads: int = 0,
) -> list[Translation]:
    """Translates texts with the export of a model (encoder-decoder), as `Translator.translate` would."""
    return CTranslate2Translator.over(export, folder, n_threads=n_threads).translate(texts, generation=generation)


def ctranslate2_log_probs(
    export: Path, folder: ModelFolder, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]
) -> list[np.ndarray]:
    """Log-probability of each target token and of the end after them, float32 [T + 1] for each pair of ids.

    Args:
        export: An exported encoder-decoder.
        folder: The model that was exported.
        sources: Ids as the encoder reads them, end mark included.
        targets: Ids of the output without its end mark.
    """
    translator = CTranslate2Translator.over(export, folder)
    results = translator.engine.score_batch(
        [[translator.src_names[i] for i in ids] for ids in sources],
        [[translator.names[i] for i in ids] for ids in targets],
        max_input_length=0,
    )
    return [np.array(result.log_probs, dtype=np.float32) for result in results]
