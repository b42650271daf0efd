import torch

from fairseq_luna.modules.dropout import WordDropout


def test_drops_whole_words():
    torch.manual_seed(0)
    dropped = WordDropout(0.25)(torch.ones(50, 40, 6))
    kept = dropped[..., 0] > 0
    assert dropped.eq(torch.where(kept, 1 / 0.75, 0.0)[..., None]).all()
    assert 0.7 < kept.float().mean() < 0.8
