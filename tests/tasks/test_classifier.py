"""What users call to classify: order, batches, blank texts, pairs, texts that are too long."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
import torch

from glassformer.data.labelled import cut_pair
from glassformer.errors import CheckpointError, ConfigError, DataError, TokenizerError
from glassformer.tasks.classifier import Classifier
from tasks.label_models import classifier
from tasks.small_models import LONG, save_folder, tokenizer

TEXTS = ["we eat bread", "", "a", "   ", "\u200b", LONG, "Anna sees the cat .", "a"]


def test_labels_are_the_largest_votes_and_probabilities_their_softmax() -> None:
    model = classifier()
    ids = torch.tensor([tokenizer().encode("we eat bread", add_bos=True, add_eos=True)])
    with torch.no_grad():
        expected = model.model.label_logits(ids)[0].double().softmax(-1).tolist()
    (found,) = model.classify(["we eat bread"])
    assert list(found.probabilities.values()) == pytest.approx(expected, abs=1e-6)
    assert list(found.probabilities) == ["bad", "good", "so so"]
    assert found.label == found.labels[0] == max(found.probabilities, key=found.probabilities.__getitem__)
    assert len(found.labels) == 1 and not found.is_cut
    labels = {model.classify([text])[0].label for text in [LONG[i : i + 20] for i in range(0, 60, 4)]}
    assert len(labels) > 1, "the model tells texts apart"


def test_order_and_result_do_not_depend_on_the_batch() -> None:
    model = classifier()
    texts = TEXTS * 6
    random.Random(0).shuffle(texts)
    alone = [model.classify([text])[0] for text in texts]
    for batch_tokens in (1, 100, 100_000):
        together = model.classify(texts, batch_tokens=batch_tokens)
        assert [found.labels for found in together] == [found.labels for found in alone]
        for found, other in zip(together, alone, strict=True):
            assert list(found.probabilities.values()) == pytest.approx(list(other.probabilities.values()), abs=1e-5)


def test_blank_texts_have_no_label_and_no_text_no_result() -> None:
    model = classifier()
    found = model.classify(TEXTS)
    assert [one.label is None for one in found] == [not text.strip() for text in TEXTS]
    assert found[1].probabilities == {} and found[1].labels == ()
    assert model.classify([]) == []


def test_several_labels_and_their_threshold() -> None:
    model = classifier(is_multi_label=True)
    (found,) = model.classify(["we eat bread"])
    shares = found.probabilities
    assert sum(shares.values()) != pytest.approx(1.0)
    for threshold in (0.0, sorted(shares.values())[1], 1.0):
        (again,) = model.classify(["we eat bread"], threshold=threshold)
        chosen = [name for name, share in shares.items() if share >= threshold]
        assert sorted(again.labels) == sorted(chosen)
        assert [shares[name] for name in again.labels] == sorted((shares[name] for name in chosen), reverse=True)
    with pytest.raises(ConfigError, match=r"threshold=1.5"):
        model.classify(["x"], threshold=1.5)


def test_pairs_are_read_together_with_their_segments() -> None:
    model = classifier(n_texts=2)
    one, swapped, blank = model.classify([("we eat", "bread"), ("bread", "we eat"), ("x", " ")])
    a, b = tokenizer().encode("we eat"), tokenizer().encode("bread")
    ids = torch.tensor([[1, *a, 2, *b, 2]])
    segments = torch.tensor([[0] * (len(a) + 2) + [1] * (len(b) + 1)])
    with torch.no_grad():
        expected = model.model.label_logits(ids, segment_ids=segments)[0].double().softmax(-1).tolist()
    assert list(one.probabilities.values()) == pytest.approx(expected, abs=1e-6)
    assert list(swapped.probabilities.values()) != pytest.approx(expected, abs=1e-3)
    assert blank.label is None
    with pytest.raises(DataError, match="'x' is one text"):
        model.classify(["x"])
    with pytest.raises(DataError, match="is a pair"):
        classifier().classify([("x", "y")])


def test_long_texts_are_cut_with_their_ends_kept_and_marked() -> None:
    long = tokenizer().encode(LONG)
    model = classifier(max_tokens=12)
    found = model.classify([LONG, tokenizer().decode(long[:10]), "a"])
    assert [one.is_cut for one in found] == [True, False, False]
    assert found[0].probabilities == pytest.approx(found[1].probabilities, abs=1e-6)
    pairs = classifier(n_texts=2, max_tokens=13)
    found = pairs.classify([(LONG, LONG), tuple(map(tokenizer().decode, cut_pair(long, long, 10)))])  # type: ignore[list-item]
    assert [one.is_cut for one in found] == [True, False]
    assert found[0].probabilities == pytest.approx(found[1].probabilities, abs=1e-6)


def test_half_a_surrogate_pair_is_an_error_of_the_text() -> None:
    with pytest.raises(TokenizerError, match="half a surrogate pair"):
        classifier().classify(["emoji \ud83d"])


def test_a_translator_is_no_classifier(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="trained with --task classify"):
        Classifier.load(save_folder(tmp_path / "m"))


def test_probabilities_stay_finite() -> None:
    model = classifier()
    with torch.no_grad():
        assert model.model.label_head is not None
        model.model.label_head.dense.weight.mul_(1e4)
    for is_multi_label in (False, True):
        model.is_multi_label = is_multi_label
        (found,) = model.classify(["we eat bread"])
        assert np.isfinite(list(found.probabilities.values())).all()
