"""Batches for masked-language training: some tokens are hidden, and predicted from all the others."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from glassformer.data.batches import BatchPlan
from glassformer.data.chance import random_bits, shares
from glassformer.data.packing import IGNORED
from glassformer.data.store import Integers, TokenLists, TokenStore
from glassformer.text.tokenizer import Tokenizer

__all__ = ["MaskedBatch", "MaskedPlan", "text_ids"]

MASK_SHARE, RANDOM_SHARE = 0.8, 0.1  # of the chosen tokens; the others stay as they are
CHOICE, CHANGE, REPLACEMENT = range(3)  # what a random number is for


def text_ids(tokenizer: Tokenizer) -> NDArray[np.int64]:
    """Ids that stand for text: no special token is among them."""
    ids = range(tokenizer.vocab_size)
    return np.array([i for i, piece in zip(ids, tokenizer.bytes_of(ids), strict=True) if piece], dtype=np.int64)


@dataclass(frozen=True, kw_only=True)
class MaskedBatch:
    """B rows of at most T tokens. All tensors are int64."""

    ids: Tensor  # [B, T] BOS, text with hidden tokens, EOS, pads
    targets: Tensor  # [B, T] what stood there; IGNORED where nothing is predicted
    rows: Tensor  # [B] indices into the store
    n_tokens: int  # targets that are not IGNORED
    n_src_tokens: int  # other tokens that are no pads

    def to(self, device: torch.device) -> MaskedBatch:
        """The same batch with its tensors on a device."""
        names = ("ids", "targets", "rows")
        moved: dict[str, Any] = {name: getattr(self, name).to(device, non_blocking=True) for name in names}
        return replace(self, **moved)


@dataclass(frozen=True)
class _Tokens:
    """The tokens of some rows end to end, and what becomes of each. All arrays [N] but the first one."""

    lengths: NDArray[np.int64]  # [n] of the rows
    ids: NDArray[np.int64]
    is_chosen: NDArray[np.bool_]
    hidden: NDArray[np.int64]  # ids after the change


class MaskedPlan(BatchPlan):
    """Rows of text with hidden tokens, in the batches of `BatchPlan`.

    Of the n tokens of a row that stand for text, k = max(1, round(share * n)) are chosen at random; special tokens
    never are. A chosen token becomes `<mask>` with probability 0.8, a random token of text with 0.1, and stays with
    0.1; in each case the model is to predict it. With `use_whole_words` words are chosen in a random order, each one
    while its middle piece is among the first k pieces, and at least one: about as many tokens are hidden as without.

    What is hidden in a row is a pure function of (seed, epoch, row), so that every epoch hides other tokens, and each
    process and each resumed run the same ones.

    Args:
        store: Rows of text as the sources; with `use_whole_words`, the pieces of each word as the targets.
        mask_id: Id of `<mask>`.
        text_ids: Ids that stand for text; see `text_ids`.
        share: Share of the tokens that are predicted, in (0, 1).
        use_whole_words: Hide all pieces of a word together.
        use_bos: Begin each row with BOS.
        options: As for `BatchPlan`.

    Source: Devlin et al. 2019, section 3.1 and appendix C.2; the fresh masks of each epoch, Liu et al. 2019.
    """

    def __init__(
        self,
        store: TokenStore,
        *,
        mask_id: int,
        text_ids: NDArray[np.int64],
        share: float,
        use_whole_words: bool,
        use_bos: bool,
        **options: int,
    ) -> None:
        super().__init__(store, **options)
        self.share, self.use_whole_words, self.use_bos = share, use_whole_words, use_bos
        self._store, self._mask_id, self._text_ids = store, mask_id, text_ids
        self._is_text = np.zeros(max(text_ids.max(), mask_id) + 1, dtype=np.bool_)
        self._is_text[text_ids] = True

    @property
    def fingerprint(self) -> dict[str, Any]:
        names = ("share", "use_whole_words", "use_bos")
        return super().fingerprint | {name: getattr(self, name) for name in names}

    def sizes(self, store: TokenStore, rows: Integers) -> tuple[Integers, Integers]:
        lengths = store.sources.lengths(rows) + 1 + self.use_bos
        return lengths, np.zeros_like(lengths)

    def n_tokens(self, rows: Integers, variant: int = 0, *, epoch: int = 0) -> int:
        """Tokens of `rows` [n] that are predicted in an epoch, over all ranks."""
        return int(self._tokens(rows, epoch).is_chosen.sum())

    def batch(  # type: ignore[override]  # a batch of another kind
        self, rows: Integers, variant: int = 0, *, epoch: int = 0, rank: int = 0, world_size: int = 1
    ) -> MaskedBatch:
        """The part of one rank in the batch of `rows` [n]: rows rank, rank + world_size, ...

        A rank for which there is no row gets the first one without any target, and adds nothing to any sum.
        """
        mine = rows[rank::world_size]
        batch = self._filled(mine if len(mine) else rows[:1], epoch)
        if len(mine):
            return batch
        targets = torch.full_like(batch.targets, IGNORED)
        return replace(batch, targets=targets, rows=batch.rows[:0], n_tokens=0, n_src_tokens=0)

    def _filled(self, rows: Integers, epoch: int) -> MaskedBatch:
        tokens = self._tokens(rows, epoch)
        pad_id, bos_id, eos_id = (self._ids[name] for name in ("pad_id", "bos_id", "eos_id"))
        start = int(self.use_bos)
        ids = np.full((len(rows), start + tokens.lengths.max(initial=0) + 1), pad_id)
        targets = np.full_like(ids, IGNORED)
        places = np.arange(ids.shape[1]) - start
        is_inside = (places >= 0) & (places < tokens.lengths[:, None])
        ids[is_inside] = tokens.hidden
        targets[is_inside] = np.where(tokens.is_chosen, tokens.ids, IGNORED)
        ids[:, :start] = bos_id
        ids[np.arange(len(rows)), start + tokens.lengths] = eos_id
        n_tokens = int(tokens.is_chosen.sum())
        return MaskedBatch(
            ids=torch.from_numpy(ids),
            targets=torch.from_numpy(targets),
            rows=torch.from_numpy(rows.astype(np.int64)),
            n_tokens=n_tokens,
            n_src_tokens=int(tokens.lengths.sum()) + len(rows) * (start + 1) - n_tokens,
        )

    def _tokens(self, rows: Integers, epoch: int) -> _Tokens:
        sources = self._store.sources
        ids, lengths = sources.gather(rows), sources.lengths(rows)
        owner = np.repeat(np.arange(len(rows)), lengths)
        place = np.arange(len(ids)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        words = _first_pieces(self._store.targets, rows, place) if self.use_whole_words else place
        keys = (self.seed, epoch, rows[owner])
        is_chosen = np.zeros(len(ids), dtype=np.bool_)
        text = np.flatnonzero(self._is_text[ids])
        bits = random_bits(*keys, words, CHOICE)[text]
        is_chosen[text] = _chosen(owner[text], words[text], bits, self.share)
        change = shares(random_bits(*keys, place, CHANGE))
        other = self._text_ids[random_bits(*keys, place, REPLACEMENT) % np.uint64(len(self._text_ids))]
        changed = np.where(change < MASK_SHARE, self._mask_id, np.where(change < MASK_SHARE + RANDOM_SHARE, other, ids))
        return _Tokens(lengths, ids, is_chosen, np.where(is_chosen, changed, ids))


def _first_pieces(words: TokenLists, rows: Integers, place: NDArray[np.int64]) -> NDArray[np.int64]:
    """For each token of `rows` [n], end to end, the place in its row of the first piece of its word: [N]."""
    sizes = words.gather(rows)
    starts = np.cumsum(sizes) - sizes
    return np.repeat(place[starts], sizes)


def _chosen(owner: Integers, words: NDArray[np.int64], bits: NDArray[np.uint64], share: float) -> NDArray[np.bool_]:
    """Which tokens [N] are predicted. Those of a word have the same owner (row), word and bits."""
    order = np.lexsort((words, bits, owner))
    owner, words = owner[order], words[order]
    places = np.arange(len(order))
    is_row = np.append(True, owner[1:] != owner[:-1]) if len(order) else np.zeros(0, dtype=np.bool_)
    is_word = is_row | np.append(True, words[1:] != words[:-1])[: len(order)]
    n_of_row = np.diff(np.append(np.flatnonzero(is_row), len(order)))
    wanted = np.repeat(np.maximum(1, np.rint(share * n_of_row)), n_of_row)
    rank = places - np.repeat(np.flatnonzero(is_row), n_of_row)
    n_of_word = np.diff(np.append(np.flatnonzero(is_word), len(order)))
    first = np.repeat(rank[is_word], n_of_word)  # rank of the first piece of each token's word
    last = first + np.repeat(n_of_word, n_of_word) - 1
    chosen = np.zeros(len(order), dtype=np.bool_)
    chosen[order] = (first + last < 2 * wanted - 1) | (first == 0)
    return chosen
