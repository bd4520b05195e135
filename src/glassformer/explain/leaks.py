"""Leak test by perturbation: change a token that may not be seen, and look which outputs move. None may."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from glassformer.model import DecoderOnly, EncoderDecoder, EncoderOnly, Model
from glassformer.text.tokenizer import SPECIALS

__all__ = ["MAX_CHANGES", "LeakCheck", "leak_checks"]

TOLERANCE = 1e-5  # of the largest output: float32 sums in another order stay below
MAX_CHANGES = 12  # places tried in one text, spread evenly
CHUNKS = (1, 3, 2, 6)  # sizes of the pieces in which the cached decoder is fed, in turn


@dataclass(frozen=True, kw_only=True)
class LeakCheck:
    """One kind of perturbation.

    `moved` names outputs that moved and may not (a leak), or, for a control, what should have moved and did not:
    a mask turned the wrong way passes some tests and fails another.
    """

    name: str
    question: str
    n_changes: int
    worst: float  # largest change of an output that may not move, over the largest output
    is_right: bool
    moved: list[str]


def leak_checks(
    model: Model, src: Sequence[Sequence[int]], tgt: Sequence[Sequence[int]], *, max_changes: int = MAX_CHANGES
) -> list[LeakCheck]:
    """All tests that suit the family.

    Args:
        model: In eval mode.
        src: Ids of each text for the encoder; empty without one.
        tgt: Ids of each text for the decoder; empty without one.
        max_changes: Most places tried in a text.
    """
    with torch.no_grad():
        probe = _Probe(model, src, tgt, max_changes)
        checks = []
        if tgt:
            rows, places = probe.variants()
            whole, chunked = probe.whole(rows), probe.chunked(rows)
            checks += [_future("full pass", whole, places), _future("cached, in chunks", chunked, places)]
            checks += [_cache_is_whole(chunked[:1], whole[:1]), _past(whole, places)]
        together = probe.padded(None)
        checks += [probe.pads(together), probe.alone(together)]
        if src:
            checks.append(probe.source_is_seen())
        return checks


class _Probe:
    def __init__(
        self, model: Model, src: Sequence[Sequence[int]], tgt: Sequence[Sequence[int]], max_changes: int
    ) -> None:
        self.model, self.max_changes = model, max_changes
        self.src, self.tgt = [list(row) for row in src], [list(row) for row in tgt]
        self.longest = max(range(len(tgt or src)), key=lambda i: len((tgt or src)[i]))
        self.vocab_size = min(model.config.vocab_size, model.config.source_vocab_size)

    def other(self, token: int) -> int:
        """Another ordinary token."""
        n = self.vocab_size - len(SPECIALS)
        return len(SPECIALS) + (token - len(SPECIALS) + 1 + n // 2) % n

    def whole(self, tgt: Tensor) -> Tensor:
        """Outputs [N, T, V] of N variants of the longest text in one pass."""
        if isinstance(self.model, EncoderDecoder):
            return self.model(self.source(len(tgt)), tgt)  # type: ignore[no-any-return]
        return self.model(tgt)  # type: ignore[no-any-return]

    def chunked(self, tgt: Tensor) -> Tensor:
        """The same by the KV cache, a few tokens at a time."""
        n_rows, length = tgt.shape
        assert not isinstance(self.model, EncoderOnly)
        if isinstance(self.model, EncoderDecoder):
            cache = self.model.new_cache(self.source(n_rows), length + 2)
        else:
            cache = self.model.new_cache(n_rows, length + 2)
        outputs: list[Tensor] = []
        start = 0
        while start < length:
            size = CHUNKS[len(outputs) % len(CHUNKS)]
            outputs.append(self.model.decode_step(tgt[:, start : start + size], cache))
            start += size
        return torch.cat(outputs, 1)

    def source(self, n_rows: int) -> Tensor:
        return torch.tensor([self.src[self.longest]]).expand(n_rows, -1)

    def variants(self) -> tuple[Tensor, list[int]]:
        """The longest target, then itself with one token changed in each row; and which one."""
        row = self.tgt[self.longest]
        n = len(row) - 1
        places = sorted({1 + i * n // min(n, self.max_changes) for i in range(min(n, self.max_changes))})
        rows = [row] + [[*row[:j], self.other(row[j]), *row[j + 1 :]] for j in places]
        return torch.tensor(rows), places

    def batch(self, rows: list[list[int]], fill: int | None, *, on_left: bool) -> tuple[Tensor, Tensor]:
        """Padded ids and the mask; `fill` takes the place of the pads, unset: the padding id."""
        width = max(map(len, rows))
        pad = self.model.config.pad_id or 0 if fill is None else fill
        filled = [[pad] * (width - len(row)) + row if on_left else row + [pad] * (width - len(row)) for row in rows]
        real = [[False] * (width - len(row)) + [True] * len(row) for row in rows]
        mask = torch.tensor(real if on_left else [row[::-1] for row in real])
        return torch.tensor(filled), mask

    def padded(self, fill: int | None) -> Tensor:
        """Outputs of all texts in one padded batch: pads behind in an encoder, in front in a decoder-only model."""
        if isinstance(self.model, DecoderOnly):
            ids, mask = self.batch(self.tgt, fill, on_left=True)
            return self.model(ids, mask=mask)  # type: ignore[no-any-return]
        src, src_mask = self.batch(self.src, fill, on_left=False)
        # Where the pads are pads, the model finds them by itself.
        given = None if fill is None and self.model.config.pad_id is not None else src_mask
        if isinstance(self.model, EncoderOnly):
            return self.model(src, mask=given)  # type: ignore[no-any-return]
        tgt, tgt_mask = self.batch(self.tgt, fill, on_left=False)
        return self.model(src, tgt, src_mask=given, tgt_mask=tgt_mask)  # type: ignore[no-any-return]

    def real(self, outputs: Tensor, row: int) -> Tensor:
        """Outputs at the real tokens of one text: [1, T, ...]."""
        n = len((self.tgt or self.src)[row])
        return outputs[row : row + 1, -n:] if isinstance(self.model, DecoderOnly) else outputs[row : row + 1, :n]

    def pads(self, before: Tensor) -> LeakCheck:
        """`before`: the padded batch as it is."""
        after = self.padded(self.other(len(SPECIALS)))
        gaps = [_gaps(self.real(after, i), self.real(before, i))[0] for i in range(len(before))]
        return self._rows("pads", "Padded tokens are changed. Does an output at a real token move?", gaps)

    def alone(self, together: Tensor) -> LeakCheck:
        """Every text by itself, without pads, against the padded batch."""
        gaps = []
        for i in range(len(together)):
            inputs = [torch.tensor([rows[i]]) for rows in (self.src, self.tgt) if rows]
            gaps.append(_gaps(self.model(*inputs), self.real(together, i))[0])
        return self._rows("alone = in a batch", "Do outputs of a text change when longer texts stand beside it?", gaps)

    def _rows(self, name: str, question: str, gaps: list[Tensor]) -> LeakCheck:
        moved = [f"text {i + 1}: the output at token {t} moved" for i, gap in enumerate(gaps) for t in _over(gap)]
        worst = max(float(gap.max()) for gap in gaps)
        return LeakCheck(
            name=name, question=question, n_changes=len(gaps), worst=worst, is_right=not moved, moved=moved
        )

    def source_is_seen(self) -> LeakCheck:
        """Control: a mask that hides the real tokens in place of the pads leaks nothing, and the model sees nothing."""
        row = self.src[self.longest]
        places = [i for i, token in enumerate(row) if token >= len(SPECIALS)][: self.max_changes]
        rows = torch.tensor([row] + [[*row[:j], self.other(row[j]), *row[j + 1 :]] for j in places])
        tgt = [torch.tensor([self.tgt[self.longest]]).expand(len(rows), -1)] if self.tgt else []
        gaps = _gaps((outputs := self.model(rows, *tgt))[1:], outputs[:1])
        last = gaps if self.tgt else torch.stack([gap.roll(-j - 1)[:-1] for j, gap in zip(places, gaps, strict=True)])
        blind = [
            f"changing source token {j} moved no output" for j, gap in zip(places, last, strict=True) if not _over(gap)
        ]
        question = "A real token of the source is changed. Do other outputs move, as they must?"
        return _control("source", question, len(places), blind)


def _future(how: str, outputs: Tensor, places: list[int]) -> LeakCheck:
    """`outputs`: those of the text, then of its variants with the token at each of `places` changed."""
    gaps = _gaps(outputs[1:], outputs[:1])  # [places, T]
    worst, moved = 0.0, []
    for j, gap in zip(places, gaps, strict=True):
        worst = max(worst, float(gap[:j].max()))
        moved += [f"changing token {j} moved the output at token {t}" for t in _over(gap[:j])]
    return LeakCheck(
        name=f"future, {how}",
        question="A later token is changed. Does an output before it move?",
        n_changes=len(places),
        worst=worst,
        is_right=not moved,
        moved=moved,
    )


def _past(outputs: Tensor, places: list[int]) -> LeakCheck:
    """`outputs`: as in `_future`."""
    blind = [
        f"changing token {j} moved nothing after it"
        for j, gap in zip(places, _gaps(outputs[1:], outputs[:1]), strict=True)
        if j + 1 < len(gap) and not _over(gap[j + 1 :])
    ]
    return _control("past", "An earlier token is changed. Do later outputs move, as they must?", len(places), blind)


def _control(what: str, question: str, n_changes: int, blind: list[str]) -> LeakCheck:
    """Passes when every change moved something: `blind` tells of those that did not."""
    return LeakCheck(
        name=f"control: {what}",
        question=question,
        n_changes=n_changes,
        worst=0.0,
        is_right=not blind,
        moved=blind,
    )


def _cache_is_whole(chunked: Tensor, whole: Tensor) -> LeakCheck:
    gap = _gaps(chunked, whole)[0]
    return LeakCheck(
        name="cache = full pass",
        question="Do outputs by the cache, in chunks, equal those of one pass?",
        n_changes=1,
        worst=float(gap.max()),
        is_right=not _over(gap),
        moved=[f"the output at token {t} differs" for t in _over(gap)],
    )


def _gaps(outputs: Tensor, base: Tensor) -> Tensor:
    """Largest difference at each token over the largest output: [N, T, V], [1 or N, T, V] -> [N, T]."""
    return (outputs - base).abs().amax(-1) / base.abs().max()


def _over(gap: Tensor) -> list[int]:
    """Tokens that moved, those that became NaN included."""
    places: list[int] = (~(gap <= TOLERANCE)).nonzero()[:, 0].tolist()
    return places
