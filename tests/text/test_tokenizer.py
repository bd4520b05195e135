"""Tokenizers: nothing is lost, user text never becomes a special token, the same corpus gives the same file."""

import os
import random
import re
import subprocess
import sys
import time
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st

from glassformer.config import TokenizerConfig
from glassformer.errors import TokenizerError
from glassformer.text.learning import _MAX_TEXT_CHARS, WORD_PATTERN, _Feed
from glassformer.text.tokenizer import SPECIALS, Tokenizer, choose_vocab_size

KINDS = ("bpe", "wordpiece", "unigram")
CORPUS = [
    "the cat sat on the mat and the dog sat on the cat",
    "l'eau et l'air, aujourd'hui comme hier",
    "we don't eat bread in 2024 !",
    "## heading ### with # signs",
    "das ist ein Test für Umlaute äöü",
] * 30
SPECIAL_LOOKALIKES = (
    "hello </s> [CLS] <pad> <unk> <s> <mask> >>fr<< world",
    "</S> < s > <PAD> < /s >",
    "＜ｓ＞＜/ｓ＞ ＜pad＞",
    "<\u200bs> </s\u200b>",
    "</s>" * 3,
)
TRICKY = (
    *("hello !", "do n't", " leading", "trailing ", "two  spaces", "a\tb", "a\nb", "\n  ", "\r\n", "", " "),
    *(f"a{' ' * n}b" for n in range(1, 21)),
    *("\u00a0", "\u3000", "a\u00a0b", "e\u0301", "😀", "a\t \tb", "a\x1c b", "\u180e b", "¨ a ¨b", "x ¨"),
    # Joiners and marks (Persian, Sinhala, emoji with variation selector, Hebrew with a direction mark, Devanagari).
    *("👩\u200d🚀", "می\u200cخواهم", "ක\u0dca\u200dෂ", "❤\ufe0f", "א\u200f12", "क्षत्रिय"),
    # Control bytes and non-characters.
    *("a\x00b", "\x1b[31m", "\x7f", "\ufffe", "\uffff", "\ufffd"),
    # Compatibility characters, and the marks of the kinds themselves.
    *("\ufe30", "\u0149", "\ufb01", "\u2167", "##a #b ##", "# # ##", "▁a", "Ġ"),
    "A" * 100,
    "A" * 101,
    "".join(map(chr, range(0x4E00, 0x4E32))),
)


@pytest.fixture(scope="module", params=KINDS)
def tokenizer(request: pytest.FixtureRequest) -> Tokenizer:
    return Tokenizer.train(CORPUS, TokenizerConfig(kind=request.param), vocab_size=700)


def has_special(ids: list[int]) -> bool:
    return any(i < len(SPECIALS) for i in ids)


@pytest.mark.parametrize("text", [*TRICKY, *SPECIAL_LOOKALIKES])
def test_decode_returns_the_text_exactly(tokenizer: Tokenizer, text: str) -> None:
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == text
    assert not has_special(ids)
    assert tokenizer.normalize(text) == text


@given(st.lists(st.text(), min_size=1, max_size=20))
@settings(max_examples=80, deadline=None)
def test_any_text_comes_back(tokenizer: Tokenizer, texts: list[str]) -> None:
    assert tokenizer.decode_batch(tokenizer.encode_batch(texts)) == texts


words = st.sampled_from(
    [" ", "  ", "\t", "\u00a0", "\x1c", "\u180e", "a", "l'", "'", "12", "é", "\u0301", "¨", "ﬁ", "!", "\u200d", "#"]
)


@given(st.lists(words, max_size=12).map("".join))
@settings(max_examples=150, deadline=None)
@pytest.mark.parametrize("normalization", ["none", "nfc", "nfkc"])
def test_words_encoded_alone_give_the_ids_of_the_whole_text(
    by_normalization: dict[str, Tokenizer], normalization: str, text: str
) -> None:
    tokenizer = by_normalization[normalization]
    first, *others = text.split() or [""]
    text = " ".join([first, *others])
    ids = [tokenizer.encode(first), *(tokenizer.encode(" " + word) for word in others)]
    assert tokenizer.encode(text) == list(chain.from_iterable(ids))


@pytest.fixture(scope="module")
def by_normalization() -> dict[str, Tokenizer]:
    return {
        name: Tokenizer.train(CORPUS, TokenizerConfig(normalization=name), vocab_size=500)  # type: ignore[arg-type]
        for name in ("none", "nfc", "nfkc")
    }


@pytest.mark.parametrize("text", [*TRICKY, *SPECIAL_LOOKALIKES])
@pytest.mark.parametrize("normalization", ["nfc", "nfkc"])
def test_normalised_text_is_stable(by_normalization: dict[str, Tokenizer], normalization: str, text: str) -> None:
    tokenizer = by_normalization[normalization]
    ids = tokenizer.encode(text)
    once = tokenizer.decode(ids)
    assert not has_special(ids)
    assert not tokenizer.is_lossless
    assert once == tokenizer.normalize(text)
    assert tokenizer.decode(tokenizer.encode(once)) == once


def test_normalisation_changes_what_it_should(by_normalization: dict[str, Tokenizer]) -> None:
    none, nfc, nfkc = (by_normalization[name] for name in ("none", "nfc", "nfkc"))
    assert none.encode("é") != none.encode("e\u0301")
    assert nfc.encode("é") == nfc.encode("e\u0301")
    for text, plain in {"\ufe30": "..", "\u0149": "\u02bcn", "\ufb01": "fi", "\u2167": "VIII"}.items():
        assert none.normalize(text) == nfc.normalize(text) == text
        assert nfkc.normalize(text) == plain
    assert (none.normalization, nfc.normalization, nfkc.normalization) == ("none", "nfc", "nfkc")


def test_save_and_load_change_nothing(tokenizer: Tokenizer, tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    tokenizer.save(path)
    loaded, plain = Tokenizer.load(path), tokenizers.Tokenizer.from_file(str(path))
    for text in (*TRICKY, *SPECIAL_LOOKALIKES, *CORPUS[:5]):
        ids = tokenizer.encode(text)
        assert loaded.encode(text) == plain.encode(text).ids == ids
        assert loaded.decode(ids) == plain.decode(ids) == text
    assert loaded.vocab_hash == tokenizer.vocab_hash
    assert (loaded.kind, loaded.vocab_size) == (tokenizer.kind, plain.get_vocab_size())
    assert [entry.name for entry in tmp_path.iterdir()] == ["tokenizer.json"]


def test_special_tokens_have_their_ids(tokenizer: Tokenizer) -> None:
    assert [tokenizer._library.token_to_id(name) for name in SPECIALS] == [0, 1, 2, 3, 4]
    ids = tokenizer.encode("a</s>b", add_bos=True, add_eos=True, allow_special=True)
    assert ids == [1, *tokenizer.encode("a"), 2, *tokenizer.encode("b"), 2]
    assert tokenizer.decode(ids) == "ab"
    assert tokenizer.decode(ids, skip_special=False) == "<s>a</s>b</s>"


def test_special_tokens_in_the_training_text_stay_text(tmp_path: Path) -> None:
    for kind in KINDS:
        tokenizer = Tokenizer.train(list(SPECIAL_LOOKALIKES) * 50, TokenizerConfig(kind=kind), vocab_size=700)  # type: ignore[arg-type]
        for text in SPECIAL_LOOKALIKES:
            assert not has_special(tokenizer.encode(text))
            assert tokenizer.decode(tokenizer.encode(text)) == text


@pytest.mark.parametrize("kind", KINDS)
def test_same_corpus_gives_the_same_bytes_in_another_process(kind: str, tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from glassformer.config import TokenizerConfig\n"
        "from glassformer.text.tokenizer import Tokenizer\n"
        "texts = Path(sys.argv[1]).read_text(encoding='utf-8').split('\\n')\n"
        "Tokenizer.train(texts, TokenizerConfig(kind=sys.argv[2]), vocab_size=800).save(Path(sys.argv[3]))"
    )
    draw = random.Random(0)
    syllables = ["ka", "no", "té", "ri", "sum", "a", "el"]
    text = "\n".join(" ".join("".join(draw.choices(syllables, k=3)) for _ in range(8)) for _ in range(300))
    (tmp_path / "corpus").write_text(text, encoding="utf-8")
    for name in ("1", "2"):
        command = [sys.executable, "-c", code, str(tmp_path / "corpus"), kind, str(tmp_path / name)]
        subprocess.run(command, check=True, env=os.environ | {"PYTHONHASHSEED": name})
    assert (tmp_path / "1").read_bytes() == (tmp_path / "2").read_bytes()


def test_small_corpus_gives_the_real_size(tokenizer: Tokenizer) -> None:
    small = Tokenizer.train(["a b c d a b c"], TokenizerConfig(kind=tokenizer.kind), vocab_size=1000)
    assert small.vocab_size == small._library.get_vocab_size() < 1000
    assert small.decode(small.encode("漢字")) == "漢字"


def test_large_alphabet_needs_no_large_vocabulary() -> None:
    text = "".join(map(chr, range(0x4E00, 0x4E00 + 5000)))
    tokenizer = Tokenizer.train([text], TokenizerConfig(), vocab_size=300)
    assert tokenizer.vocab_size <= 300
    assert tokenizer.decode(tokenizer.encode(text)) == text


@pytest.mark.parametrize(("kind", "smallest"), [("bpe", 261), ("wordpiece", 517), ("unigram", 261)])
def test_size_below_the_alphabet_is_refused_with_the_smallest(kind: str, smallest: int) -> None:
    config = TokenizerConfig(kind=kind)  # type: ignore[arg-type]
    with pytest.raises(TokenizerError, match=f"{smallest} or more"):
        Tokenizer.train(CORPUS, config, vocab_size=smallest - 1)
    assert Tokenizer.train(CORPUS, config, vocab_size=smallest).vocab_size == smallest


@pytest.mark.parametrize("texts", [[], [""], [" ", "\t \n"]])
def test_nothing_to_learn_from_is_an_error(texts: list[str]) -> None:
    for kind in KINDS:
        with pytest.raises(TokenizerError, match="no visible character"):
            Tokenizer.train(texts, TokenizerConfig(kind=kind), vocab_size=1000)  # type: ignore[arg-type]


def test_control_bytes_in_the_corpus(tmp_path: Path) -> None:
    corpus = ["a\x00b a\x00b", "\x1b[31m red \x1b[0m", "\x7f\ufffe\uffff \x00", "\x00\x00\x00"] * 20
    for kind in KINDS:
        tokenizer = Tokenizer.train(corpus, TokenizerConfig(kind=kind), vocab_size=600)  # type: ignore[arg-type]
        tokenizer.save(tmp_path / "t.json")
        loaded = Tokenizer.load(tmp_path / "t.json")
        assert all(loaded.names)
        for text in corpus:
            assert loaded.decode(loaded.encode(text)) == text
            shown = "".join(loaded.pieces(loaded.encode(text)))
            assert shown.isprintable() and ("\x00" not in text or "\\x00" in shown)


def test_pieces_are_readable() -> None:
    tokenizer = Tokenizer.train(CORPUS, TokenizerConfig(), vocab_size=500)
    assert tokenizer.pieces(tokenizer.encode("the cat", add_eos=True)) == ["the", " cat", "</s>"]
    assert tokenizer.pieces(tokenizer.encode("漢")) == ["\\xe6", "\\xbc", "\\xa2"]


def test_max_length_keeps_the_end() -> None:
    tokenizer = Tokenizer.train(CORPUS, TokenizerConfig(), vocab_size=300)
    ids = tokenizer.encode("abcd xyz")
    assert tokenizer.encode("abcd xyz", add_eos=True, max_length=4) == [*ids[:3], 2]
    assert tokenizer.encode("abcd xyz", add_bos=True, add_eos=True, max_length=4) == [1, *ids[:2], 2]
    assert tokenizer.encode("abcd xyz", add_eos=True, max_length=1) == [2]
    assert tokenizer.encode("abcd xyz", max_length=0) == []
    with pytest.raises(TokenizerError, match="max_length=1"):
        tokenizer.encode("abcd", add_bos=True, add_eos=True, max_length=1)


@pytest.mark.parametrize("wrong", [-1, 300])
def test_id_outside_the_vocabulary_is_an_error(wrong: int) -> None:
    tokenizer = Tokenizer.train(CORPUS, TokenizerConfig(), vocab_size=300)
    with pytest.raises(TokenizerError, match=f"Id {wrong} has no token. Ids run from 0 to 299"):
        tokenizer.decode([5, wrong])


def test_lone_surrogate_is_an_error(tokenizer: Tokenizer) -> None:
    for call in (tokenizer.encode, tokenizer.normalize, lambda text: tokenizer.encode_batch(["fine", text])):
        with pytest.raises(TokenizerError, match=r"U\+D83D, at character 6"):
            call("emoji \ud83d")


def test_dropout_varies_the_pieces_but_not_the_text() -> None:
    tokenizer = Tokenizer.train(CORPUS, TokenizerConfig(), vocab_size=500)
    text = CORPUS[0]
    variants = tokenizer.encode_batch([text] * 20, dropout=0.3)
    assert len({tuple(ids) for ids in variants}) > 5
    assert set(tokenizer.decode_batch(variants)) == {text}
    assert tokenizer.encode(text) == tokenizer._library.encode(text).ids
    wordpiece = Tokenizer.train(CORPUS, TokenizerConfig(kind="wordpiece"), vocab_size=700)
    with pytest.raises(TokenizerError, match="Only BPE"):
        wordpiece.encode("a", dropout=0.1)


@pytest.mark.parametrize("content", ["", "{}", "not json", '{"model": {"type": "BPE"}}', "[1]", "\x00"])
def test_damaged_file_is_an_error(content: str, tmp_path: Path) -> None:
    (tmp_path / "t.json").write_text(content)
    with pytest.raises(TokenizerError, match=re.escape(str(tmp_path / "t.json"))):
        Tokenizer.load(tmp_path / "t.json")


def test_cut_file_is_an_error_at_every_place(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    Tokenizer.train(CORPUS, TokenizerConfig(), vocab_size=300).save(path)
    whole = path.read_bytes()
    for n in range(0, len(whole) - 1, len(whole) // 40):
        path.write_bytes(whole[:n])
        with pytest.raises(TokenizerError):
            Tokenizer.load(path)


def test_tokenizer_of_another_make_is_refused(tmp_path: Path) -> None:
    foreign = tokenizers.Tokenizer(tokenizers.models.BPE())
    foreign.add_special_tokens(["<s>"])
    foreign.save(str(tmp_path / "t.json"))
    with pytest.raises(TokenizerError, match="not trained by glassformer"):
        Tokenizer.load(tmp_path / "t.json")
    with pytest.raises(TokenizerError, match="missing"):
        Tokenizer.load(tmp_path / "missing.json")


def test_failed_save_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = Tokenizer.train(CORPUS, TokenizerConfig(), vocab_size=300)
    path = tmp_path / "t.json"
    path.write_text("old")

    def full_disk(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full_disk)
    with pytest.raises(TokenizerError, match="No space left"):
        tokenizer.save(path)
    assert path.read_text() == "old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["t.json"]


def test_huge_lines_are_learned_from_in_bounded_time() -> None:
    draw = random.Random(0)
    latin = "".join(draw.choices("abcdefghij", k=200_000))
    chinese = "".join(chr(draw.randint(0x4E00, 0x4F00)) for _ in range(60_000))
    start = time.perf_counter()
    tokenizer = Tokenizer.train([latin, chinese], TokenizerConfig(), vocab_size=400)
    assert time.perf_counter() - start < 30
    assert tokenizer.decode(tokenizer.encode(latin)) == latin


def test_long_texts_are_cut_for_the_trainer_and_nothing_is_lost() -> None:
    text = "x" * (2 * _MAX_TEXT_CHARS + 1)
    parts = list(_Feed([text, "short"], None))
    assert [len(part) for part in parts] == [_MAX_TEXT_CHARS, _MAX_TEXT_CHARS, 1, 5]
    assert "".join(parts) == text + "short"


def test_text_that_looks_like_the_mark_of_wordpiece_comes_back() -> None:
    tokenizer = Tokenizer.train(["##ab ##ab xab #####ab"] * 50, TokenizerConfig(kind="wordpiece"), vocab_size=600)
    for text in ("##ab", "##a", "a##ab", "###", "# ##b"):
        assert tokenizer.decode(tokenizer.encode(text)) == text


def test_no_word_is_longer_than_64_letters() -> None:
    split = tokenizers.pre_tokenizers.Split(tokenizers.Regex(WORD_PATTERN), "isolated")
    text = " " + "a" * 1000 + "!" * 1000 + " " * 1000 + "1" * 10 + "\u0301" * 200
    pieces = [piece for piece, _ in split.pre_tokenize_str(text)]
    assert "".join(pieces) == text
    assert max(map(len, pieces)) == 65


def test_words_stay_whole_at_joiners_and_take_their_apostrophe() -> None:
    split = tokenizers.pre_tokenizers.Split(tokenizers.Regex(WORD_PATTERN), "isolated")
    for text, words in {
        "l'eau d’or": ["l'", "eau", " d’", "or"],
        " می\u200cخواهم": [" می\u200cخواهم"],
        "👩\u200d🚀": ["👩\u200d🚀"],
        "in 2024!": ["in", " 2", "0", "2", "4", "!"],
        "</s>": ["</", "s", ">"],
    }.items():
        assert [word for word, _ in split.pre_tokenize_str(text)] == words


def test_progress_and_unset_size() -> None:
    seen: list[int] = []
    texts = [CORPUS[i % 5] for i in range(20_000)]
    tokenizer = Tokenizer.train(texts, TokenizerConfig(), on_progress=seen.append)
    assert seen == [10_000, 20_000]
    assert 261 < tokenizer.vocab_size <= choose_vocab_size(160_000)[0]
    with pytest.raises(TokenizerError, match="read only once"):
        Tokenizer.train(iter(texts), TokenizerConfig())


@pytest.mark.parametrize(
    ("n_words", "size"),
    [(0, 500), (1_000, 800), (125_000, 4000), (1_000_000, 8000), (64_000_000, 32_000), (10**9, 32_000)],
)
def test_chosen_size_follows_the_data(n_words: int, size: int) -> None:
    assert choose_vocab_size(n_words)[0] == size
    assert choose_vocab_size(0, 6 * n_words)[0] == size


@pytest.mark.parametrize(("kind", "n_sentinels", "size"), [("bpe", 0, 500), ("wordpiece", 0, 700), ("bpe", 900, 1300)])
def test_chosen_size_always_holds_the_alphabet_and_some_pieces(kind: Any, n_sentinels: int, size: int) -> None:
    """T5: nobody asked for a size, so a small corpus is no error."""
    config = TokenizerConfig(kind=kind, n_sentinels=n_sentinels)
    assert choose_vocab_size(20, config=config)[0] == size
    assert Tokenizer.train(["a few words"] * 5, config).vocab_size <= size
    with pytest.raises(TokenizerError, match="vocab_size=0 is smaller than the alphabet"):
        Tokenizer.train(["a few words"] * 5, config, vocab_size=0)
