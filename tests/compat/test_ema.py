"""``--store-ema``: a mean of parameters, and the last model's seeds and random directions."""

import torch
from fairseq.dataclass.configs import EMAConfig
from fairseq.models.ema import EMA

from support import build_model


def test_the_mean_has_the_last_random_numbers():
    flags = {"encoder_self_attention": "bigbird", "decoder_self_attention": "performer", "share_all_embeddings": False}
    first, last = (build_model("mixed", seed=seed, **flags) for seed in (0, 1))
    ema = EMA(first, EMAConfig(store_ema=True, ema_decay=0.25))
    ema.step(last)
    mean = ema.get_model().state_dict()
    drawn = [name for name in mean if name.endswith((".seed", ".seeds", ".directions"))]
    assert {name.rpartition(".")[2] for name in drawn} == {"seed", "seeds", "directions"}
    for name in drawn:
        assert mean[name].equal(last.state_dict()[name]), name
    for name, value in last.named_parameters():
        torch.testing.assert_close(mean[name], 0.25 * first.state_dict()[name] + 0.75 * value)
