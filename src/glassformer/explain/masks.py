"""The masks as the kernel gets them, with the tokens on both axes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from glassformer.explain.leaks import MAX_CHANGES, LeakCheck, leak_checks
from glassformer.explain.tokens import Tokens
from glassformer.explain.trace import run_whole, watch
from glassformer.model import DecoderOnly, EncoderDecoder
from glassformer.tasks import Translator
from glassformer.tasks.generator import TextGenerator
from glassformer.tasks.model_folder import ModelFolder

__all__ = ["MaskPicture", "MasksView", "masks_view"]


@dataclass(frozen=True, kw_only=True)
class MaskPicture:
    """One mask of the shorter text of a batch of two; True = may attend. Rows are queries, columns are keys."""

    key: str  # encoder.self, decoder.self, decoder.cross
    says: str
    queries: list[str]
    keys: list[str]
    mask: NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True)
class MasksView:
    """Pictures and the leak test of one batch."""

    texts: list[str]
    pictures: list[MaskPicture]
    checks: list[LeakCheck]

    @property
    def has_leak(self) -> bool:
        return any(not check.is_right for check in self.checks)


SAYS = {
    "encoder.self": "padding mask: every token sees every real token, and no pad",
    "decoder.self": "causal and padding mask: a token sees itself and what came before it",
    "decoder.cross": "memory mask: every target token sees every real source token, and no pad",
}


def masks_view(
    folder: ModelFolder,
    texts: Sequence[str],
    *,
    targets: Sequence[Sequence[int]] | None = None,
    max_changes: int = MAX_CHANGES,
) -> MasksView:
    """Runs a padded batch through the model, looks at what its kernels were given, and tests for leaks.

    Args:
        folder: Any family.
        texts: At least two, of unequal lengths.
        targets: Ids of each text's translation, end included (encoder-decoder); unset: the model translates.
        max_changes: Most places that the leak test tries in a text.
    """
    model, tokenizer = folder.model, folder.tokenizer
    src = tgt = None
    src_rows: list[list[int]] = []
    if isinstance(model, DecoderOnly):
        tgt_rows = [TextGenerator(model, tokenizer, folder.config.generation).prompt_ids(text) for text in texts]
    else:
        read = [folder.config.task.prefix + text.strip() for text in texts]
        src_rows = [folder.src_tokenizer.encode(text, add_bos=model.config.use_bos, add_eos=True) for text in read]
        if targets is None and isinstance(model, EncoderDecoder):
            targets = [translation.ids for translation in Translator.of(folder).translate(texts)]
        tgt_rows = [[model.config.bos_id, *ids[:-1]] for ids in targets or []]
    if src_rows:
        src = _padded(src_rows, folder.src_tokenizer.pad_id)
    if tgt_rows:
        tgt = _padded(tgt_rows, tokenizer.pad_id)
    inputs = tuple(ids for ids in (src, tgt) if ids is not None)
    with watch(model) as calls, torch.no_grad():
        run_whole(model, *inputs)
    shorter = min(range(len(texts)), key=lambda row: len((src_rows or tgt_rows)[row]))
    labels = {
        "encoder": None if src is None else Tokens.of(folder.src_tokenizer, src[shorter].tolist()).labels,
        "decoder": None if tgt is None else Tokens.of(tokenizer, tgt[shorter].tolist()).labels,
    }
    pictures = []
    for side, kind in (("encoder", "self"), ("decoder", "self"), ("decoder", "cross")):
        kept = calls.kernels.get(f"{side}.stack.blocks.0.{kind}_attention")
        queries, keys = labels[side], labels["encoder" if kind == "cross" else side]
        if kept and queries and keys:
            pictures.append(_picture(f"{side}.{kind}", kept[-1].mask, shorter, queries, keys))
    return MasksView(
        texts=list(texts), pictures=pictures, checks=leak_checks(model, src_rows, tgt_rows, max_changes=max_changes)
    )


def _picture(key: str, mask: Tensor | None, row: int, queries: list[str], keys: list[str]) -> MaskPicture:
    shape, says = (len(queries), len(keys)), SAYS[key]
    if mask is None:
        return MaskPicture(
            key=key, says="no mask: nothing is hidden here", queries=queries, keys=keys, mask=np.ones(shape, dtype=bool)
        )
    own = mask[min(row, len(mask) - 1), 0].expand(shape)
    return MaskPicture(key=key, says=says, queries=queries, keys=keys, mask=own.numpy().copy())


def _padded(rows: Sequence[Sequence[int]], pad_id: int) -> Tensor:
    tensors = [torch.tensor(list(row)) for row in rows]
    return torch.nn.utils.rnn.pad_sequence(tensors, batch_first=True, padding_value=pad_id)
