"""From labelled rows to stores and batches: what is cut, where labels stand, who gets which row."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from glassformer.config import Config, DataConfig, ModelConfig, TaskConfig, TokenizerConfig
from glassformer.data.label_batches import Framing, LabelBatches, TargetMaker
from glassformer.data.labelled import cut_pair, joined, prepare_texts, prepare_words, room_for, windows, word_pieces
from glassformer.data.packing import IGNORED
from glassformer.data.store import TokenStore
from glassformer.errors import ConfigError, DataError
from glassformer.text.label_set import LabelSet
from glassformer.text.labelled import LabelledText, LabelledWords
from glassformer.text.tokenizer import Tokenizer
from glassformer.training.label_losses import ClassificationObjective, LabellingObjective

CLS, SEP = 101, 102


@dataclass
class Rows:
    """A reader of rows at hand."""

    rows: list[Any]
    bad: dict[str, int] = field(default_factory=dict)
    bad_examples: dict[str, str] = field(default_factory=dict)

    @property
    def n_rows(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Any:
        return iter(self.rows)


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.train(
        ["the cat sat on the mat", "a longer word: internationalisation"], TokenizerConfig(), vocab_size=280
    )


def config(**changes: Any) -> ModelConfig:
    sizes: dict[str, Any] = {"family": "encoder-only", "vocab_size": 280, "use_bos": True}
    return ModelConfig(**(sizes | changes))


# -- cutting (known failure T11) ------------------------------------------------------------------------------


def test_a_cut_text_keeps_begin_and_end() -> None:
    framing = Framing(ModelConfig(family="encoder-only", bos_id=CLS, eos_id=SEP, use_bos=True, vocab_size=200))
    room = room_for(4, use_bos=True, n_texts=1)
    framed = framing([joined([10, 20, 30, 40], None, room=room, eos_id=SEP)])
    assert framed.ids.tolist() == [[CLS, 10, 20, SEP]]
    no_bos = Framing(ModelConfig(family="encoder-only", eos_id=2))
    room = room_for(4, use_bos=False, n_texts=1)
    assert no_bos([joined([10, 20, 30, 40], None, room=room, eos_id=2)]).ids.tolist() == [[10, 20, 30, 2]]


def test_a_cut_pair_keeps_both_ends_and_its_segments() -> None:
    framing = Framing(
        ModelConfig(family="encoder-only", bos_id=CLS, eos_id=SEP, use_bos=True, vocab_size=200, n_segments=2)
    )
    room = room_for(8, use_bos=True, n_texts=2)
    rows = [joined([1, 2, 3, 4, 5], [6, 7], room=room, eos_id=SEP), joined([1], [6], room=room, eos_id=SEP)]
    framed = framing(rows)
    assert framed.ids.tolist() == [[CLS, 1, 2, 3, SEP, 6, 7, SEP], [CLS, 1, SEP, 6, SEP, 0, 0, 0]]
    assert framed.segment_ids is not None
    assert framed.segment_ids.tolist() == [[0, 0, 0, 0, 0, 1, 1, 1], [0, 0, 0, 1, 1, 0, 0, 0]]
    assert framed.mask.tolist() == [[True] * 8, [True] * 5 + [False] * 3]


@settings(deadline=None)
@given(st.integers(0, 12), st.integers(0, 12), st.integers(2, 14))
def test_pairs_are_cut_token_by_token_from_the_longer_text(n: int, m: int, room: int) -> None:
    a, b = list(range(n)), list(range(m))
    while len(a) + len(b) > room:
        (a if len(a) > len(b) else b).pop()
    assert cut_pair(list(range(n)), list(range(m)), room) == (a, b)


@pytest.mark.parametrize(("max_tokens", "n_texts"), [(1, 1), (2, 1), (4, 2)])
def test_no_room_for_any_text_is_an_error(max_tokens: int, n_texts: int) -> None:
    with pytest.raises(ConfigError, match=f"max_tokens={max_tokens}"):
        room_for(max_tokens, use_bos=True, n_texts=n_texts)


@settings(deadline=None)
@given(st.lists(st.integers(1, 9), min_size=1, max_size=20), st.integers(3, 8))
def test_windows_hold_every_word_once_in_order_and_fit(lengths: list[int], room: int) -> None:
    pieces = [[0] * n for n in lengths]
    bounds = windows(pieces, room)
    assert [i for start, stop in bounds for i in range(start, stop)] == list(range(len(lengths)))
    for start, stop in bounds:
        assert sum(lengths[start:stop]) <= room or stop - start == 1


# -- stores ---------------------------------------------------------------------------------------------------


def test_words_carry_their_label_on_their_first_piece(tokenizer: Tokenizer, tmp_path: Path) -> None:
    words = ("internationalisation", "cat", "Zürich")
    labels = LabelSet(("B-X", "O"), (1, 2), 3, "BIO")
    rows = Rows([LabelledWords(words, ("B-X", "O", "B-X"), 4)])
    assert prepare_words(rows, tokenizer, labels, tmp_path / "s", room=60) == 0
    store = TokenStore.open(tmp_path / "s")
    (pieces,) = word_pieces(tokenizer, [words])
    assert store.src(0).tolist() == tokenizer.encode(" ".join(words)) == [i for ids in pieces for i in ids]
    assert min(len(ids) for ids in (pieces[0], pieces[2])) > 1, "some word has several pieces"
    starts = np.cumsum([0, *map(len, pieces)])[:-1]
    assert np.flatnonzero(store.tgt(0)).tolist() == starts.tolist()
    assert store.tgt(0)[starts].tolist() == [1, 2, 1]


def test_long_sentences_are_divided_and_long_words_cut(tokenizer: Tokenizer, tmp_path: Path) -> None:
    words = ("the", "cat", "x" * 50, "sat", "on", "the", "mat")
    rows = Rows([LabelledWords(words, ("O",) * 7, 1), LabelledWords(("cat",), ("O",), 9)])
    assert prepare_words(rows, tokenizer, LabelSet(("O", "X"), (8, 0), 8), tmp_path / "s", room=5) == 1
    store = TokenStore.open(tmp_path / "s")
    assert max(np.diff(store.sources.offsets)) <= 5
    assert store.row_numbers.tolist()[-1] == 9 and set(store.row_numbers.tolist()) == {1, 9}
    assert np.count_nonzero(store.targets.ids) == 8, "every word has its label once"


def test_unknown_labels_and_repeats_are_left_out_and_counted(tokenizer: Tokenizer, tmp_path: Path) -> None:
    labels = LabelSet(("a", "b"), (1, 1), 2)
    rows = [("one", "a"), ("two", "c"), ("one", "a"), ("one", "b"), ("three", "c")]
    reader = Rows(
        [LabelledText(text, None, (label,), i) for i, (text, label) in enumerate(rows, 1)],
        {"1 column": 2},
        {"1 column": "f, line 9"},
    )
    prepare_texts(reader, tokenizer, labels, tmp_path / "s", room=20, drop_duplicates=True)
    store = TokenStore.open(tmp_path / "s")
    assert store.row_numbers.tolist() == [1, 4]
    assert [store.tgt(i).tolist() for i in range(2)] == [[0], [1]]
    assert {reason: entry["count"] for reason, entry in store.excluded.items()} == {
        "1 column": 2,
        "with the label 'c', which the training data do not have": 2,
        "duplicate": 1,
    }
    prepare_texts(reader, tokenizer, labels, tmp_path / "all", room=20)
    assert len(TokenStore.open(tmp_path / "all")) == 3
    with pytest.raises(DataError, match=r"No labelled text is left of 5 rows.*'c'"):
        prepare_texts(reader, tokenizer, LabelSet(("z", "y"), (1, 1), 2), tmp_path / "none", room=20)
    assert not (tmp_path / "none").exists()


def test_control_tokens_in_a_text_stay_text(tokenizer: Tokenizer, tmp_path: Path) -> None:
    text = "hello </s> <pad> <s> <mask>"
    reader = Rows([LabelledText(text, text, ("a",), 1)])
    prepare_texts(reader, tokenizer, LabelSet(("a", "b"), (1, 1), 2, n_texts=2), tmp_path / "s", room=400)
    ids = TokenStore.open(tmp_path / "s").src(0).tolist()
    assert ids.count(tokenizer.eos_id) == 1, "the end of the first text alone"
    assert not {tokenizer.pad_id, tokenizer.bos_id, tokenizer.mask_id} & set(ids)
    place = ids.index(tokenizer.eos_id)
    assert tokenizer.decode(ids[:place]) == tokenizer.decode(ids[place + 1 :]) == text


def test_cut_texts_are_counted(tokenizer: Tokenizer, tmp_path: Path) -> None:
    reader = Rows([LabelledText("the cat sat " * n, None, ("a",), n) for n in (1, 30, 40)])
    assert prepare_texts(reader, tokenizer, LabelSet(("a", "b"), (1, 1), 2), tmp_path / "s", room=30) == 2
    assert max(np.diff(TokenStore.open(tmp_path / "s").sources.offsets)) == 30


# -- batches --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=["single", "multi", "words"])
def batches(
    request: Any, tokenizer: Tokenizer, tmp_path_factory: pytest.TempPathFactory
) -> tuple[LabelBatches, TokenStore]:
    folder = tmp_path_factory.mktemp(request.param)
    names = ("a", "b", "c")
    labels = LabelSet(names, (4, 4, 4), 12)
    (folder / "labels.json").write_text(labels.to_json(), encoding="utf-8")
    texts = ["the cat " * (i % 5 + 1) for i in range(23)]
    if request.param == "words":
        rows: list[Any] = [
            LabelledWords(tuple(t.split()), tuple(names[j % 3] for j in range(len(t.split()))), i)
            for i, t in enumerate(texts)
        ]
        prepare_words(Rows(rows), tokenizer, labels, folder / "s", room=30)
    else:
        chosen = [names[: i % 4] if request.param == "multi" else (names[i % 3],) for i in range(23)]
        rows = [LabelledText(t, None, chosen[i], i) for i, t in enumerate(texts)]
        prepare_texts(Rows(rows), tokenizer, labels, folder / "s", room=30)
    objective = LabellingObjective(folder) if request.param == "words" else ClassificationObjective(folder)
    whole = Config(
        model=objective.fit(config(vocab_size=tokenizer.vocab_size)),
        task=TaskConfig(is_multi_label=request.param == "multi"),
        data=DataConfig(batch_tokens=60),
    )
    store = TokenStore.open(folder / "s")
    return objective.batches(whole, store), store


def test_an_epoch_holds_every_row_once_and_ranks_share_each_batch(batches: tuple[LabelBatches, TokenStore]) -> None:
    plan, store = batches
    epoch = plan.epoch(1)
    seen: list[int] = []
    for i in range(len(epoch)):
        parts = [plan.batch(epoch[i], rank=rank, world_size=3) for rank in range(3)]
        whole = plan.batch(epoch[i])
        assert sum(part.n_tokens for part in parts) == whole.n_tokens == plan.n_tokens(epoch[i])
        assert sorted(row for part in parts for row in part.rows.tolist()) == sorted(whole.rows.tolist())
        seen += whole.rows.tolist()
        assert int((whole.targets != IGNORED).sum()) == whole.n_tokens * (3 if whole.targets.is_floating_point() else 1)
    assert sorted(seen) == list(range(len(store)))


def test_a_rank_without_rows_predicts_nothing(batches: tuple[LabelBatches, TokenStore]) -> None:
    plan, _ = batches
    empty = plan.batch(np.array([5]), rank=1, world_size=2)
    assert empty.n_tokens == empty.n_src_tokens == len(empty.rows) == 0
    assert bool((empty.targets == IGNORED).all())


def test_what_a_batch_asks_for(batches: tuple[LabelBatches, TokenStore]) -> None:
    plan, store = batches
    rows = np.array([3, 5])
    batch = plan.batch(rows)
    if plan.fingerprint["kind"] == "single":
        assert batch.targets.tolist() == [0, 2]
    elif plan.fingerprint["kind"] == "multi":
        assert batch.targets.tolist() == [[1, 1, 1], [1, 0, 0]]
    else:
        for row, targets in zip(rows, batch.targets, strict=True):
            expected = [IGNORED, *(n - 1 if n else IGNORED for n in store.tgt(row).tolist()), IGNORED]
            assert targets.tolist()[: len(expected)] == expected
            assert set(targets.tolist()[len(expected) :]) <= {IGNORED}
    assert batch.ids[0, 0] == 1 and batch.ids.dtype == torch.int64


def test_target_maker_counts_words_not_pieces() -> None:
    maker = TargetMaker("words", n_labels=3, n_before=1)
    assert maker.count([np.array([1, 0, 0, 3]), np.array([2])]) == 3
    assert TargetMaker("single", n_labels=3, n_before=1).count([np.array([0]), np.array([2])]) == 2
