"""Models of the authors' program since 2023, which saves the weights of layer norms less 1 under unchanged names."""

import logging
from argparse import Namespace

import pytest
import torch
import torch.nn.functional as F
from fairseq.data import Dictionary
from fairseq.sequence_generator import SequenceGenerator

from fairseq_luna.models.luna import LunaModel
from fairseq_luna.models.luna.checkpoint_names import NORM, convert_state_dict
from fairseq_luna.usage_error import CheckpointMismatch
from support import PAD, build_luna, golden, step_by_step

# A GPU's sine in fp32, of fairseq's positions, has another last digit.
CLOSE = {"rtol": 0, "atol": 1e-12 if torch.get_default_device().type == "cpu" else 2e-7}


def dictionary(words):
    made = Dictionary()
    for number in range(words):
        made.add_symbol(f"s{number}")
    return made


@pytest.fixture(scope="module", params=["prenorm_tied", "lnemb_sinus"])
def recorded(request):
    return golden("luna_norm_weights_minus_one.pt")[request.param]


@pytest.fixture(scope="module")
def task(recorded):
    source, target = (dictionary(recorded[f"{side}_symbols"]) for side in ("src", "tgt"))
    return Namespace(source_dictionary=source, target_dictionary=source if recorded["shared"] else target)


@pytest.fixture(scope="module")
def model(recorded, task):
    model = LunaModel.build_model(Namespace(**recorded["config"]), task).double()
    model.load_state_dict({name: value.double() for name, value in recorded["state_dict"].items()}, strict=True)
    return model.eval()


def test_the_numbers_are_theirs(recorded, model):
    encoder_out = model.encoder(recorded["src"], recorded["src_lengths"])
    words = recorded["src"].ne(PAD).t()
    torch.testing.assert_close(encoder_out["encoder_out"][0][words], recorded["encoder_out"][words], **CLOSE)
    logits, _ = model.decoder(recorded["prev"], encoder_out=encoder_out)
    real = recorded["prev"].ne(PAD)
    torch.testing.assert_close(logits[real], recorded["logits"][real], **CLOSE)
    stepped = step_by_step(model, recorded["prev"], encoder_out)
    torch.testing.assert_close(stepped[real], recorded["incremental"][real], **CLOSE)
    loss = F.cross_entropy(logits.flatten(0, 1), recorded["tgt"].flatten(), ignore_index=PAD, reduction="sum")
    torch.testing.assert_close(loss, recorded["loss"], rtol=1e-12, atol=0)


@pytest.mark.parametrize("beam", [1, 4])
def test_a_beam_finds_their_hypotheses(recorded, model, task, beam):
    generator = SequenceGenerator([model], task.target_dictionary, beam_size=beam, max_len_b=14)
    net_input = {"src_tokens": recorded["src"], "src_lengths": recorded["src_lengths"]}
    found = generator.generate([model], {"net_input": net_input})
    for ours, theirs in zip(found, recorded[f"beam{beam}"], strict=True):
        assert [hypothesis["tokens"].tolist() for hypothesis in ours] == [tokens for tokens, _ in theirs]
        scores = [hypothesis["score"].item() for hypothesis in ours]
        assert scores == pytest.approx([score for _, score in theirs], abs=1e-6)


def as_logged(caplog):
    return [record.getMessage() for record in caplog.records if record.name.endswith("checkpoint_names")]


def test_one_is_added_once_and_said_once(recorded, caplog):
    state = dict(recorded["state_dict"])
    norms = sum(bool(NORM.search(name)) for name in state)
    name = "encoder.layers.0.self_attn_layer_norm.weight"
    before = state[name].clone()
    with caplog.at_level(logging.INFO):
        convert_state_dict(state)
        once = dict(state)
        convert_state_dict(state)  # its names are ours now
    assert as_logged(caplog) == [f"1 is added to the weights of {norms} layer norms, which fairseq-apollo saves less 1"]
    assert all(state[name] is value for name, value in once.items())
    assert once[name].equal(before + 1)
    assert recorded["state_dict"][name].equal(before)
    assert once["encoder.layers.0.fc1.weight"] is recorded["state_dict"]["encoder.layers.0.fc1.weight"]


@pytest.mark.parametrize("part", ["encoder", "decoder"])
def test_one_is_added_in_a_part_of_a_model_too(recorded, part):
    state = {name: value for name, value in recorded["state_dict"].items() if name.startswith(f"{part}.layers.")}
    name = f"{part}.layers.0.final_layer_norm.weight"
    before = state[name]
    convert_state_dict(state)
    assert state[name].equal(before + 1)


def test_weights_near_one_and_models_of_our_own_stay(caplog):
    older = golden("luna_tied.pt")["state_dict"]
    state, own = dict(older), build_luna().state_dict()
    for name, value in own.items():
        if NORM.search(name):
            value.zero_()
    left = dict(own)
    with caplog.at_level(logging.INFO):
        convert_state_dict(state)
        convert_state_dict(left)
    assert as_logged(caplog) == []
    assert (
        state["encoder.layers.0.self_attn_packed_layer_norm.weight"]
        is older["encoder.layers.0.self_atten_proj_layer_norm.weight"]
    )
    assert all(left[name] is value for name, value in own.items())


def test_a_mixture_is_refused_and_can_be_decided(recorded, model):
    state = dict(recorded["state_dict"])
    name = "encoder.layers.1.final_layer_norm.weight"
    state[name] = state[name] + 0.8
    given = dict(state)
    with pytest.raises(CheckpointMismatch) as raised:
        model.load_state_dict(given, strict=True)
    message = str(raised.value)
    assert name in message
    assert (
        "fairseq_luna.models.luna.checkpoint_names.convert_state_dict(state['model'], norms_less_one=True)" in message
    )
    assert "\n" not in message
    assert all(given[key] is value for key, value in state.items())  # nothing is changed
    for less_one, added in ((True, 1), (False, 0)):
        decided = dict(state)
        convert_state_dict(decided, norms_less_one=less_one)
        assert decided[name].equal(state[name] + added)
        model.load_state_dict(decided, strict=True)
