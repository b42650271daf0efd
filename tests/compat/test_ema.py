"""``--store-ema``: a mean of parameters, and the last model's seeds and random directions."""

import pytest
import torch
from fairseq.dataclass.configs import EMAConfig
from fairseq.models.ema import EMA

from commands import FAMILIES, SIZES, train
from fairseq_luna.models.shared.state_dict_loading import UNTRAINED_COPY
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


@pytest.mark.parametrize("family", ["transformer", "mixed", "luna"])
@pytest.mark.parametrize("precise", [False, True])
def test_a_shared_parameter_decays_once_in_a_step(family, precise):
    first, last = (build_model(family, seed=seed, share_all_embeddings=True) for seed in (0, 1))
    ema = EMA(first, EMAConfig(store_ema=True, ema_decay=0.25, ema_fp32=precise))
    for _ in range(2):
        ema.step(last)
    mean, start, end = (model.state_dict() for model in (ema.get_model(), first, last))
    for name, value in start.items():
        if value.numel() > 1 and not UNTRAINED_COPY.search(name):
            torch.testing.assert_close(mean[name], value / 16 + 15 / 16 * end[name], msg=name)
    assert mean["encoder.embed_tokens.weight"].data_ptr() == mean["decoder.output_projection.weight"].data_ptr()


def test_half_precision_has_a_mean_for_each_name():
    first, last = (build_model("luna", seed=seed, share_all_embeddings=True).half() for seed in (0, 1))
    ema = EMA(first, EMAConfig(store_ema=True, ema_decay=0.25, ema_fp32=True))
    ema.step(last)
    names = ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight", "decoder.output_projection.weight")
    start, end = (model.state_dict()[names[0]].float() for model in (first, last))
    for name in names:
        torch.testing.assert_close(ema.fp32_params[name], 0.25 * start + 0.75 * end)


@pytest.mark.parametrize("family", ["mixed", "transformer"])
@pytest.mark.parametrize("start", ["finetune-from-model", "restore-file"])
@pytest.mark.parametrize("precise", [(), ("--ema-fp32",)], ids=["", "fp32"])
def test_a_mean_begins_with_the_model_of_a_checkpoint_without_one(family, start, precise, tiny_data, tmp_path):
    model = FAMILIES["mixed"] if family == "mixed" else ("--arch=transformer", *SIZES)
    flags = (*model, "--optimizer=adam", "--lr=0.001", "--disable-validation", "--encoder-normalize-before")
    saved = train(tiny_data, tmp_path / "without", *flags, "--max-update=2")
    mean, end = ("--store-ema", "--ema-decay=0.75", *precise), 3 if start == "restore-file" else 1
    continued = train(tiny_data, tmp_path / "with", *flags, *mean, f"--{start}={saved}", f"--max-update={end}")
    before, after = (torch.load(path, weights_only=True) for path in (saved, continued))
    found = after["extra_state"]["ema"]
    assert found.keys() == after["model"].keys()
    for name in ("encoder.layer_norm.weight", "encoder.embed_tokens.weight"):
        torch.testing.assert_close(found[name], 0.75 * before["model"][name] + 0.25 * after["model"][name])
