"""A training that is stopped in its second epoch and resumed equals an uninterrupted one bit for bit."""

import torch

import tiny_training


def test_resuming_in_the_second_epoch_is_bit_identical(tiny_data, tmp_path):
    whole = tiny_training.train_here(tiny_data, tmp_path / "whole", "--max-epoch=3")
    tiny_training.train_here(tiny_data, tmp_path / "halves", "--max-epoch=3", "--max-update=12")
    resumed = tiny_training.train_here(tiny_data, tmp_path / "halves", "--max-epoch=3")

    expected = tiny_training.trained_weights(whole)
    weights = tiny_training.trained_weights(resumed)
    assert weights.keys() == expected.keys()
    assert [name for name in weights if not torch.equal(weights[name], expected[name])] == []
