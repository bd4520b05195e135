"""What the timed runs count and schedule, worked out by hand. Nothing is trained."""

from __future__ import annotations

import pytest
import timed_training
import torch


def test_the_peers_rate_rises_for_a_tenth_of_the_time_and_ends_with_it() -> None:
    found = [timed_training.rate_after(passed) for passed in (0.0, 0.05, 0.1, 0.55, 1.0, 1.1)]
    assert found == pytest.approx([0, 0.5, 1, 0.5, 0, 0])


def test_a_batch_of_the_peer_is_padded_and_its_tokens_are_counted() -> None:
    collator = timed_training.Collator(pad_id=0, bos_id=1)
    rows = [
        {"input_ids": torch.tensor([5, 6, 2]), "labels": torch.tensor([7, 2])},
        {"input_ids": torch.tensor([8, 2]), "labels": torch.tensor([9, 4, 2])},
    ]
    batch = {name: ids.tolist() for name, ids in collator(rows).items()}
    assert batch == {
        "input_ids": [[5, 6, 2], [8, 2, 0]],
        "attention_mask": [[1, 1, 1], [1, 1, 0]],
        "decoder_input_ids": [[1, 7, 2], [1, 9, 4]],
        "labels": [[7, 2, -100], [9, 4, 2]],
    }
    assert collator.counts == [10]
