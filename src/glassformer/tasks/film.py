"""A probe sentence filmed while a model trains: what it says, with which candidates, and who looks at whom.

`film.jsonl` of a run has a line for each frame, one before training and one at each validation; `glassformer film RUN`
shows them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from glassformer.config import Config
from glassformer.errors import ConfigError
from glassformer.model import DecoderOnly, EncoderDecoder, EncoderOnly, Model, attention_maps
from glassformer.tasks.generator import TextGenerator
from glassformer.tasks.task import Tokenizers
from glassformer.tasks.translator import Translator

__all__ = ["FILM", "Probe"]

FILM = "film.jsonl"
N_CANDIDATES = 3  # first choices kept for each token
NEW_TOKENS = 12  # most tokens made beyond the length of the sentence (or prompt)


class Probe:
    """The sentence `validation.film`, ready to be put to a model.

    Raises:
        ConfigError: The sentence is longer than a text of this run may be.
    """

    def __init__(self, config: Config, tokenizers: Tokenizers) -> None:
        self.config, self.tokenizers = config, tokenizers
        self.text = config.validation.film.strip()
        n_tokens = len(tokenizers.src.encode(config.task.prefix + self.text)) + 2  # with both marks
        if n_tokens > config.data.max_tokens:
            raise ConfigError(
                f"validation.film has {n_tokens} tokens.",
                f"At most data.max_tokens={config.data.max_tokens} were expected.",
                "Film a shorter sentence.",
            )

    @torch.no_grad()
    def frame(self, model: Model) -> dict[str, Any]:
        """What a model makes of the sentence, as plain JSON.

        Returns:
            `output`, the pieces read (`src`, `tgt`) and written (`chosen`), for each token of the output its first
            `candidates` as [piece, probability], and `attention`: key -> weights [H, T, S], rows are queries.
        """
        device = next(model.parameters()).device
        src, tgt, chosen = self._run(model)
        inputs = [torch.tensor([ids], device=device) for ids in (src, tgt) if ids]
        return {
            "text": self.text,
            "output": self.tokenizers.tgt.decode(chosen),
            "src": self.tokenizers.src.pieces(src),
            "tgt": self.tokenizers.tgt.pieces(tgt),
            "chosen": self.tokenizers.tgt.pieces(chosen),
            "candidates": self._candidates(model, inputs, n_last=len(chosen)),
            "attention": {
                f"{side}.{layer}.{kind}": [[[round(w, 3) for w in row] for row in head] for head in weights[0].tolist()]
                for name, maps in attention_maps(model, *inputs).items()
                for side, kind in [("decoder", "cross") if name == "cross" else (name, "self")]
                for layer, weights in enumerate(maps, start=1)
            },
        }

    def _run(self, model: Model) -> tuple[list[int], list[int], list[int]]:
        """Ids of the source, of what the decoder read, and of what it wrote, greedily; empty where there is none."""
        generation = replace(self.config.generation, beam_size=1, n_best=1, do_sample=False)
        if isinstance(model, EncoderOnly):
            add_bos = model.config.use_bos
            return self.tokenizers.src.encode(self.text, add_bos=add_bos, add_eos=True, allow_special=True), [], []
        if isinstance(model, DecoderOnly):
            generation = replace(generation, min_new_tokens=0, max_new_tokens=NEW_TOKENS)
            generator = TextGenerator(model, self.tokenizers.tgt, generation)
            prompt, chosen = generator.prompt_ids(self.text), generator.generate([self.text])[0].ids
            return [], [*prompt, *chosen[:-1]], chosen
        max_tokens, prefix = self.config.data.max_tokens, self.config.task.prefix
        generation = replace(
            generation, min_new_tokens=0, max_new_tokens=None, max_length_a=1.0, max_length_b=NEW_TOKENS
        )
        translator = Translator(
            model, self.tokenizers.src, self.tokenizers.tgt, generation, max_src_tokens=max_tokens, prefix=prefix
        )
        chosen = translator.translate([self.text], is_strict=True)[0].ids
        return translator.source_ids([self.text])[0], [model.config.bos_id, *chosen[:-1]], chosen

    def _candidates(self, model: Model, inputs: list[Tensor], n_last: int) -> list[list[tuple[str, float]]]:
        """The first choices of each written token; of every token, where a masked word is guessed."""
        if isinstance(model, EncoderDecoder | DecoderOnly):
            logits = model(*inputs)[0, -n_last:]
        elif model.mlm_head is not None:
            logits = model.mlm_head(model(*inputs))[0]
        else:
            return []
        best = logits.float().softmax(-1).topk(N_CANDIDATES)
        pieces = [self.tokenizers.tgt.pieces(ids) for ids in best.indices.tolist()]
        return [
            [(piece, round(p, 4)) for piece, p in zip(row, probs, strict=True)]
            for row, probs in zip(pieces, best.values.tolist(), strict=True)
        ]
