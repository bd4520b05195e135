"""Single outputs: the worst ones in a fixed order, and the faults that can be counted."""

from __future__ import annotations

import pytest

from glassformer.config import EvaluationConfig
from glassformer.evaluation.scores import Counts
from glassformer.evaluation.sentences import faults, has_loop, looks_tokenized, worst


def test_worst_come_first_and_equal_ones_in_order() -> None:
    sources = ["s1", "s2", "s3", "s4", "s5"]
    references = ["le chat", "le chien", "un lion", "un cheval", "la mer"]
    hypotheses = ["le chat", "zzz", "un loin", "qqq", "la mer"]
    counts = Counts(hypotheses, references, use_ter=False, config=EvaluationConfig(n_worst=4))
    found = worst(counts, sources, hypotheses, references, [1, 3, 4, 6, 7])
    assert [(s.line, s.source) for s in found] == [(3, "s2"), (6, "s4"), (4, "s3"), (1, "s1")]
    assert found[0].chrf == 0 and 0 < found[2].chrf < 100 and found[3].chrf == pytest.approx(100)


@pytest.mark.parametrize(
    ("source", "hypothesis", "reference", "name"),
    [
        ("Save the file", "  ", "Enregistrer", "empty"),
        ("Save the file", "Save the file", "Enregistrer le fichier", "copies"),
        ("I know", "je sais que je sais que je sais que je sais que", "je sais", "loops"),
        ("wow", "lalalalalalalalalalalalalala", "oh", "loops"),
        ("It costs 1,250.50 dollars", "Cela coûte 1 250 dollars", "Cela coûte 1 250,50 dollars", "numbers"),
        ("Open %s in {0}", "Ouvrir %s", "Ouvrir %s dans {0}", "placeholders"),
        ("Error %1", "Erreur %2", "Erreur %1", "placeholders"),
    ],
)
def test_each_fault_is_counted_once_and_alone(source: str, hypothesis: str, reference: str, name: str) -> None:
    found = vars(faults([source], [hypothesis], [reference]))
    assert found == {key: int(key == name) for key in found}


@pytest.mark.parametrize(
    ("source", "hypothesis", "reference"),
    [
        ("OK", "OK", "OK"),  # a copy that is right
        ("five cars", "5 voitures", "5 voitures"),  # the reference writes the number otherwise, too
        ("1,250.50", "1 250,50", "1250,50"),  # parted in other ways
        ("%d files, 100% done", "%d fichiers, 100 % faits", "%d fichiers, 100 % faits"),
        ("Delete %d?", "Supprimer ?", "Le supprimer ?"),  # the reference has no placeholder either
        ("no no no no", "non non non non", "non non non non"),  # the reference repeats itself
    ],
)
def test_what_is_right_is_not_counted(source: str, hypothesis: str, reference: str) -> None:
    assert set(vars(faults([source], [hypothesis], [reference])).values()) == {0}


def test_loops_begin_at_four_repeats_of_words() -> None:
    assert not has_loop("a b a b a b")
    assert has_loop("x a b a b a b a b")
    assert not has_loop("")
    assert not has_loop("très très très bien")


def test_tokenised_text_is_recognised() -> None:
    assert looks_tokenized(["Je dors .", "Oui"])
    assert not looks_tokenized(["Je dors."] * 10 + ["etc ."])
    assert not looks_tokenized(["Vraiment !", "Quoi ?"])
