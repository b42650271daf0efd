from argparse import Namespace

import pytest
import torch
import torch.nn.functional as F

from fairseq_luna.models.luna import LunaModel
from fairseq_luna.models.luna.checkpoint_names import rename
from support import CLOSE, PAD, golden, step_by_step, translation_task


@pytest.fixture(scope="module", params=["luna_tied", "luna_untied_prenorm_fixed", "luna_learned_pos_lnemb"])
def recorded(request):
    return golden(f"{request.param}.pt")


@pytest.fixture
def model(recorded):
    model = LunaModel.build_model(Namespace(**recorded["config"]), translation_task(recorded["vocab"]))
    model.load_state_dict(dict(recorded["state_dict"]), strict=True)
    return model.eval()


@pytest.fixture
def encoder_out(model, recorded):
    return model.encoder(recorded["src_tokens"], recorded["src_lengths"])


def test_encoder(recorded, encoder_out):
    real = recorded["src_tokens"].ne(PAD).t()
    torch.testing.assert_close(encoder_out["encoder_out"][0][real], recorded["encoder_out"][real], **CLOSE)
    packed, expected = encoder_out["packed_out"][0], recorded["encoder_projected_out"]
    mask = recorded["encoder_projected_padding_mask"]
    if mask is None:
        assert encoder_out["packed_padding_mask"] == []
        torch.testing.assert_close(packed, expected, **CLOSE)
    else:
        assert encoder_out["packed_padding_mask"][0].equal(mask)
        torch.testing.assert_close(packed[~mask.t()], expected[~mask.t()], **CLOSE)


def test_logits_loss_and_gradients(recorded, model, encoder_out):
    target, prefix = recorded["target"], recorded["prev_output_tokens"]
    logits, _ = model.decoder(prefix, encoder_out=encoder_out)
    real = prefix.ne(PAD)
    torch.testing.assert_close(logits[real], recorded["logits"][real], **CLOSE)
    loss = F.cross_entropy(logits.flatten(0, 1), target.flatten(), ignore_index=PAD)
    torch.testing.assert_close(loss, recorded["loss"], **CLOSE)
    loss.backward()
    expected = dict(recorded["grads"])
    rename(expected)
    ours = {name: parameter.grad for name, parameter in model.named_parameters()}
    assert set(expected) <= set(ours)
    for name, gradient in expected.items():
        torch.testing.assert_close(ours[name], gradient, msg=lambda m, name=name: f"{name}: {m}", **CLOSE)


def test_generation_step_by_step(recorded, model, encoder_out):
    prefix = recorded["prev_output_tokens"]
    logits = step_by_step(model, prefix, encoder_out)
    real = prefix.ne(PAD)
    torch.testing.assert_close(logits[real], recorded["incremental_logits"][real], **CLOSE)
