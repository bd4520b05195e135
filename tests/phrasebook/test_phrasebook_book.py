"""Properties of the whole book: one French sentence for each English one, sound French, held-out combinations."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from pathlib import Path

import pytest
from click.testing import CliRunner

from glassformer.cli.phrasebook import command
from glassformer.config import PhrasebookConfig
from glassformer.errors import ConfigError
from glassformer.phrasebook import Pair, generate, split
from glassformer.phrasebook.conjugation import conjugate
from glassformer.phrasebook.spelling import has_vowel_sound, surface

N_PAIRS = 100_000
VOWEL = "[aeiouyàâéèêîôœ]"
# What no French sentence of the book may contain.
IMPOSSIBLE = [
    rf"\b(je|ne|me|se|le|la|de|que|ce|du|au) {VOWEL}",  # missing elision, or du and au before a vowel
    r"\b(je|ne|me|se|le|la|de|que|du|au|ce) (h(?!aricot|ibou|omard|éros))",  # the same before a mute h
    r"\b[a-z]+'(haricot|hibou|homard|héros)",  # elision before an aspirated h
    rf"\b(j|n|m|s|l|d|qu|c)'(?!{VOWEL}|h)",  # elision before a consonant
    r"\b(de le|de les|à le|à les|de des|de du|si il|parce que il)\b",
    rf"\b(beau|nouveau|(un|le|ce|du|au|mon|son|votre|notre|leur) vieux) ({VOWEL}|h(?!aricot|ibou|omard|éros))",
    rf"\b(ma|sa) ({VOWEL}|h)",
    rf"\b(bel|nouvel|vieil|cet) (?!{VOWEL}|h)",
    r"\b(bel|nouvel|vieil|cet) (haricot|hibou|homard|héros)",
    r"\b(ne |n').*\b(mang|boi|buv|bu|achet|achèt|prépar|trouv)\w* (pas |jamais )?(du|de la|de l'|des|une?)\b",
    r"\b(beaucoup|trop) (du |des |de la |de l')",
    r"\b(\w+) \1\b(?<!nous nous)(?<!vous vous)",  # a word twice, but for reflexive verbs
    r"\b(mangons|nagons|voyagons|partagons|commencons|mangais|commencais)\b",
    r"\bje (est|a|va|sont)\b|\bnous (sont|est)\b|\b(il|elle) (sont|ont)\b|\bils (est|a)\b",
    r"  |^ | $|'\s|\s'|\s\.|[^ ]\?|\?.",
]


@pytest.fixture(scope="module")
def book() -> list[Pair]:
    return list(generate(N_PAIRS, seed=1))


@pytest.fixture(scope="module")
def parts() -> tuple[list[Pair], list[Pair]]:
    return split(seed=3, n_train=15_000, n_test=600)


def _plain(sentence: str) -> str:
    return sentence.rstrip(".").lower()


def test_book_holds_a_hundred_thousand_distinct_pairs(book: list[Pair]) -> None:
    assert len(set(book)) == len({english for english, _ in book}) == N_PAIRS
    # Not one repeated by its capital and its full stop either.
    assert len({_plain(english) for english, _ in book}) > 0.9 * N_PAIRS


def test_each_english_sentence_has_one_french_sentence(book: list[Pair]) -> None:
    meanings = defaultdict(set)
    for english, french in book:
        meanings[_plain(english)].add(_plain(french))
    assert [english for english, found in meanings.items() if len(found) > 1] == []


@pytest.mark.parametrize("pattern", IMPOSSIBLE)
def test_no_impossible_french(book: list[Pair], pattern: str) -> None:
    wrong = re.compile(pattern)
    assert [french for _, french in book if wrong.search(_plain(french))][:5] == []


def test_style_is_the_same_on_both_sides(book: list[Pair]) -> None:
    shares: Counter[str] = Counter()
    for english, french in book:
        assert english.endswith(".") == french.endswith(".")
        assert english.endswith("?") == french.endswith(" ?")
        shares["stop"] += english.endswith(".")
        shares["capital"] += french[0].isupper()
        if re.match("(I|Paul|Anna|Marie)\\b", english):
            is_name = french.split()[0] in ("Paul", "Anna", "Marie")
            assert is_name or french[0].isupper() == english.endswith(".")
        else:
            assert french[0].isupper() == english[0].isupper()
    assert 0.1 < shares["stop"] / N_PAIRS < 0.4
    assert 0.15 < shares["capital"] / N_PAIRS < 0.45


def test_every_french_word_comes_often_enough_to_be_learned(book: list[Pair]) -> None:
    counts = Counter(word for _, french in book for word in re.findall(r"[\w-]+'?", french.lower()))
    assert sum(count < 5 for count in counts.values()) < 0.01 * len(counts)


def test_english_articles_and_agreement(book: list[Pair]) -> None:
    wrong = re.compile(r"\ba [aeiou]|\ban (?![aeiou])|^(he|she) (have|do|are|want)\b|^(we|you|they) (has|is|does)\b|  ")
    assert [english for english, _ in book if wrong.search(english.lower())] == []


def test_same_seed_gives_the_same_book_and_another_seed_another() -> None:
    first = list(generate(300, seed=5))
    assert first == list(generate(300, seed=5))
    assert first == list(generate(400, seed=5))[:300]
    assert first != list(generate(300, seed=6))


def test_held_out_sentences_are_unseen_but_their_words_are_seen(parts: tuple[list[Pair], list[Pair]]) -> None:
    train, held_out = parts
    assert (len(train), len(held_out)) == (15_000, 600)
    for side in (0, 1):
        assert {pair[side] for pair in train}.isdisjoint(pair[side] for pair in held_out)
        seen = {word for pair in train for word in pair[side].split()}
        assert all(word in seen for pair in held_out for word in pair[side].split())
    assert len(set(held_out)) == len(held_out)


def test_we_eat_bread_is_translated_unseen(parts: tuple[list[Pair], list[Pair]]) -> None:
    train, held_out = parts
    assert held_out[0] == ("we eat bread", "nous mangeons du pain")
    # Neither with another article, nor negated, nor as a question.
    cell = re.compile(
        r"^we (often |always |never |do not |don't )?eat\b.*\bbread\b|do we (often )?eat\b.*\bbread\b", re.I
    )
    assert [english for english, _ in train if cell.search(english)] == []
    assert any(re.search(r"^we\b.*\beat\b", english) for english, _ in train)
    assert any(re.search(r"\beat\b.*\bbread\b", english) for english, _ in train)


def test_held_out_cells_have_all_their_variants_held_out(parts: tuple[list[Pair], list[Pair]]) -> None:
    # "she is tired", "she is not tired": each (subject, adjective) of the present is on one side only.
    plain = re.compile(r"^(he|she|we|they|you) (?:is|are)(?: not|n't)? (happy|tired|sad|ill|tall|kind|rich|young|old)$")
    sides = [{match.groups() for pair in rows if (match := plain.match(_plain(pair[0])))} for rows in parts]
    assert sides[0] and sides[1] and sides[0].isdisjoint(sides[1])


def test_counts_are_checked() -> None:
    with pytest.raises(ConfigError, match="n_pairs=0 is too small"):
        generate(0)
    with pytest.raises(ConfigError, match="n_test=0 is too small"):
        split(1, 10, 0)
    with pytest.raises(ConfigError, match="n_train=5 is too few"):
        split(1, 5, 5)


@pytest.fixture
def small_default(monkeypatch: pytest.MonkeyPatch) -> PhrasebookConfig:
    default = PhrasebookConfig(pairs=8000, valid_rows=50, test_rows=100)
    monkeypatch.setattr("glassformer.config.PhrasebookConfig", lambda: default)
    return default


def test_command_writes_the_same_three_files_each_time(tmp_path: Path, small_default: PhrasebookConfig) -> None:
    for name in ("one", "two"):
        result = CliRunner().invoke(command, ["--out", str(tmp_path / name), "--seed", "4"])
        assert result.exit_code == 0, result.output
        assert "train.tsv: 8,000 pairs" in result.output
    for name in ("train.tsv", "valid.tsv", "test.tsv"):
        content = (tmp_path / "one" / name).read_bytes()
        assert content == (tmp_path / "two" / name).read_bytes()
        assert all(line.count("\t") == 1 for line in content.decode().splitlines())
    assert content.startswith(b"we eat bread\tnous mangeons du pain\n")
    assert len(content.decode().splitlines()) == small_default.test_rows


def test_command_names_a_folder_that_cannot_be_written(tmp_path: Path, small_default: PhrasebookConfig) -> None:
    (tmp_path / "file").write_text("x")
    result = CliRunner().invoke(command, ["--out", str(tmp_path / "file"), "--pairs", str(small_default.pairs)])
    assert isinstance(result.exception, Exception) and "cannot be written" in str(result.exception)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("je aime le homme", "j'aime l'homme"),
        ("de le homme", "de l'homme"),
        ("de le héros", "du héros"),
        ("à les enfants", "aux enfants"),
        ("est-ce que il ne a pas de argent", "est-ce qu'il n'a pas d'argent"),
        ("je vais le attendre", "je vais l'attendre"),
    ],
)
def test_surface(words: str, expected: str) -> None:
    assert surface(words.split()) == expected


def test_vowel_sounds() -> None:
    assert all(has_vowel_sound(word) for word in ("eau", "œuf", "homme", "huile", "Anna", "écrit"))
    assert not any(has_vowel_sound(word) for word in ("pain", "haricots", "hibou", "homard", "héros"))


CONJUGATIONS = """
manger | mange mange mangeons mangez mangent | mangeais mangeait mangions mangiez mangeaient | mangerai | mangé
commencer | commence commence commençons commencez commencent | commençais commençait commencions commenciez \
commençaient | commencerai | commencé
acheter | achète achète achetons achetez achètent | achetais achetait achetions achetiez achetaient | achèterai | acheté
lever | lève lève levons levez lèvent | levais levait levions leviez levaient | lèverai | levé
être | suis est sommes êtes sont | étais était étions étiez étaient | serai | été
boire | bois boit buvons buvez boivent | buvais buvait buvions buviez buvaient | boirai | bu
voir | vois voit voyons voyez voient | voyais voyait voyions voyiez voyaient | verrai | vu
oublier | oublie oublie oublions oubliez oublient | oubliais oubliait oubliions oubliiez oubliaient | oublierai | oublié
"""


@pytest.mark.parametrize("line", CONJUGATIONS.strip().splitlines())
def test_conjugation(line: str) -> None:
    infinitive, present, imperfect, future, participle = line.split(" | ")
    forms = conjugate(infinitive)
    assert " ".join(forms.present) == present
    assert " ".join(forms.imperfect) == imperfect
    assert forms.future[0] == future
    assert forms.participle == participle
