"""Batches for span corruption: spans of a text are hidden behind sentinels, and written out as the target."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from glassformer.data.batches import Batch, BatchPlan
from glassformer.data.chance import random_bits
from glassformer.data.store import Integers, TokenStore
from glassformer.errors import ConfigError

__all__ = ["SpanPlan", "corrupted", "joined", "span_counts"]

HIDDEN, KEPT = range(2)  # what a random number is for


def span_counts(lengths: Integers, share: float, mean_span: float) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """How many tokens are hidden in texts of these lengths [n], and behind how many sentinels.

    max(1, round(share * length)) tokens lie in max(1, round(hidden / mean_span)) spans, between which at least one
    token stays.
    """
    hidden = np.minimum(np.maximum(1, np.rint(share * lengths)), lengths).astype(np.int64)
    spans = np.maximum(1, np.rint(hidden / mean_span)).astype(np.int64)
    return hidden, np.minimum(spans, lengths - hidden + 1)


def corrupted(ids: Integers, spans: NDArray[np.int64], sentinel_ids: Sequence[int]) -> tuple[list[int], list[int]]:
    """A text as source and target: each span is a sentinel in one, and follows its sentinel in the other.

    Args:
        ids: The text [n].
        spans: Start and end of each span, in order [s, 2].
        sentinel_ids: The first s are used, one for each span.

    Source: Raffel et al. 2020, section 3.1.4 and figure 2.
    """
    src: list[int] = []
    tgt: list[int] = []
    done = 0
    for (start, end), sentinel in zip(spans.tolist(), sentinel_ids, strict=False):
        src += [*ids[done:start].tolist(), sentinel]
        tgt += [sentinel, *ids[start:end].tolist()]
        done = end
    return src + ids[done:].tolist(), tgt


def joined(src: Sequence[int], tgt: Sequence[int], sentinel_ids: Sequence[int]) -> list[int]:
    """The text of a source and a target: each sentinel gives way to what follows it in the target."""
    is_sentinel = set(sentinel_ids)
    hidden: dict[int, list[int]] = {}
    span: list[int] = []
    for token in tgt:
        if token in is_sentinel:
            span = hidden.setdefault(token, [])
        else:
            span.append(token)
    return [token for t in src for token in (hidden.get(t, []) if t in is_sentinel else [t])]


class SpanPlan(BatchPlan):
    """Texts with hidden spans as pairs of source and target, in the batches of `BatchPlan`.

    See `span_counts` for how much of a text is hidden. The lengths of the spans, and of what stays between them, are
    drawn so that each way of dividing the text is as likely as any other. They are a pure function of (seed, epoch,
    row): every epoch hides other spans, and each process and each resumed run the same ones. The target ends with EOS;
    there is no sentinel before it.

    Args:
        store: Texts as the sources.
        sentinel_ids: Ids of `<extra_id_0>`, `<extra_id_1>` and so on.
        share: Share of the tokens that are hidden, in (0, 1).
        mean_span: Mean number of tokens of a span, at least 1.
        use_bos: Begin each source with BOS.
        options: As for `BatchPlan`.

    Raises:
        ConfigError: A text would need more sentinels than there are.
    """

    def __init__(
        self,
        store: TokenStore,
        *,
        sentinel_ids: Sequence[int],
        share: float,
        mean_span: float,
        use_bos: bool,
        **options: int,
    ) -> None:
        super().__init__(store, **options)
        self.share, self.mean_span, self.use_bos = share, mean_span, use_bos
        self._store, self._sentinel_ids = store, sentinel_ids
        most = int(span_counts(np.diff(store.sources.offsets), share, mean_span)[1].max())
        if most > len(sentinel_ids):
            raise ConfigError(
                f"The longest text needs {most} sentinels, and the vocabulary has {len(sentinel_ids)}.",
                "Each hidden span is named by an entry <extra_id_k> of its own.",
                "Raise tokenizer.n_sentinels (in a new run) or task.mean_span, or lower data.max_tokens.",
            )

    @property
    def fingerprint(self) -> dict[str, Any]:
        return super().fingerprint | {name: getattr(self, name) for name in ("share", "mean_span", "use_bos")}

    def sizes(self, store: TokenStore, rows: Integers) -> tuple[Integers, Integers]:
        lengths = store.sources.lengths(rows)
        hidden, spans = span_counts(lengths, self.share, self.mean_span)
        return lengths - hidden + spans + 1 + self.use_bos, hidden + spans + 1

    def n_tokens(self, rows: Integers, variant: int = 0, *, epoch: int = 0) -> int:
        """Target tokens of `rows` [n] with EOS, over all ranks."""
        return int(self.sizes(self._store, rows)[1].sum())

    def pairs(self, rows: Integers, epoch: int = 0) -> list[tuple[list[int], list[int]]]:
        """Source and target of each of `rows` [n] in an epoch, without BOS and EOS."""
        hidden, spans = span_counts(self._store.sources.lengths(rows), self.share, self.mean_span)
        # What stays: at least one token between two spans, none or more before the first and after the last one.
        kept = self._store.sources.lengths(rows) - hidden + 2
        inner = self._divided(rows, hidden, spans, epoch, HIDDEN)
        outer = self._divided(rows, kept, spans + 1, epoch, KEPT)
        pairs = []
        for row, sizes, gaps in zip(rows, inner, outer, strict=True):
            starts = np.cumsum(gaps[:-1]) - 1 + np.cumsum(sizes) - sizes
            places = np.stack([starts, starts + sizes], axis=1)
            pairs.append(corrupted(self._store.src(row), places, self._sentinel_ids))
        return pairs

    def _divided(
        self, rows: Integers, totals: NDArray[np.int64], parts: NDArray[np.int64], epoch: int, purpose: int
    ) -> list[NDArray[np.int64]]:
        """For each of `rows` [n], its total [n] as a sum of so many parts [n] of at least 1, each sum as likely.

        A total t has t - 1 places for a cut; those with the smallest random numbers are cut.
        """
        n_places = totals - 1
        firsts = np.cumsum(n_places) - n_places
        owner = np.repeat(np.arange(len(rows)), n_places)
        place = np.arange(n_places.sum()) - np.repeat(firsts, n_places)
        order = np.lexsort((random_bits(self.seed, epoch, rows[owner], place, purpose), owner))
        is_cut = np.zeros(len(order), dtype=np.bool_)
        is_cut[order] = place < np.repeat(parts - 1, n_places)  # in this order, places are ranks
        cuts = np.split(place[is_cut] + 1, np.cumsum(parts - 1)[:-1])
        return [np.diff(np.concatenate([[0], some, [total]])) for some, total in zip(cuts, totals, strict=True)]

    def batch(self, rows: Integers, variant: int = 0, *, epoch: int = 0, rank: int = 0, world_size: int = 1) -> Batch:
        """The part of one rank in the batch of `rows` [n]: rows rank, rank + world_size, ...

        A rank for which there is no row gets the first one with nothing but pads in tgt_out, and adds nothing to any
        sum.
        """
        mine = rows[rank::world_size]
        pairs = self.pairs(mine if len(mine) else rows[:1], epoch)
        pad_id, bos_id, eos_id = (self._ids[name] for name in ("pad_id", "bos_id", "eos_id"))
        start = [bos_id] if self.use_bos else []
        src = [[*start, *src, eos_id] for src, _ in pairs]
        tgt_out = [[*tgt, eos_id] for _, tgt in pairs]
        padded = _padded(tgt_out, pad_id)
        return Batch(
            src=_padded(src, pad_id),
            tgt_in=_padded([[bos_id, *tgt] for _, tgt in pairs], pad_id),
            tgt_out=padded if len(mine) else torch.full_like(padded, pad_id),
            rows=torch.from_numpy(mine.astype(np.int64)),
            n_tokens=sum(map(len, tgt_out)) if len(mine) else 0,
            n_src_tokens=sum(map(len, src)) if len(mine) else 0,
        )


def _padded(rows: list[list[int]], pad_id: int) -> torch.Tensor:
    ids = np.full((len(rows), max(map(len, rows))), pad_id, dtype=np.int64)
    for row, values in zip(ids, rows, strict=True):
        row[: len(values)] = values
    return torch.from_numpy(ids)
