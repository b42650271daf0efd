"""States with room: a step changes no shape, so that it can be recorded once and replayed on the same memory."""

import pytest
import torch

import operator_tape
from every_attention import EVERY, WITH_OPTIONS, build, inputs
from fairseq_luna.models.mixed.chosen_attentions import ATTENTIONS
from fairseq_luna.modules.decoding_state import flatten_state, select_rows
from fairseq_luna.ops.padding import Padding
from numeric import scattered_padding

TOKENS = 100
# Windows and chunks that a sequence leaves several times; blocks of decoders have 8 steps.
BOUNDARIES = {"attention_window": 16, "attention_chunk": 16}
DECODERS = [name for name, place in [*EVERY, *WITH_OPTIONS] if place == "decoder"]
every_decoder = pytest.mark.parametrize("name", DECODERS)
CLOSE = {"rtol": 1e-9, "atol": 1e-9}


def in_fp64(name):
    flags = ATTENTIONS[name].arguments("decoder") if name in ATTENTIONS else {}
    module = build(name, "decoder", **{flag: size for flag, size in BOUNDARIES.items() if flag in flags}).double()
    return module, inputs(module, TOKENS, 3)[0].double()


def shapes(state):
    return {name: tensor.shape for name, tensor in flatten_state(state).items()}


@every_decoder
@torch.no_grad()
def test_recorded_steps_replayed_on_the_same_memory_equal_the_whole_pass(name):
    """The first step makes the state, the second is recorded, and all later ones are replays, with new rows."""
    module, x = in_fp64(name)
    expected = module(x)
    y, state = module.step(x[:1], None, None)
    torch.testing.assert_close(y, expected[:1], **CLOSE)
    state = module.with_room(state, TOKENS)
    newest, rows = x[1:2].clone(), torch.arange(3)
    buffers, out = flatten_state(state), torch.empty_like(y)

    def one_step():
        y, after = module.step(newest, None, select_rows(state, rows))
        out.copy_(y)
        for field, tensor in flatten_state(after).items():
            buffers[field].copy_(tensor)

    kept = {field: tensor.clone() for field, tensor in buffers.items()}

    def reset():
        for field, tensor in kept.items():
            buffers[field].copy_(tensor)

    replay = operator_tape.record(one_step, reset)
    rows_of_x = torch.arange(3)
    for token in range(1, TOKENS):
        order = torch.tensor([1, 2, 0] if token == 37 else [0, 1, 2])
        rows.copy_(order)
        rows_of_x = rows_of_x[order]
        newest.copy_(x[token : token + 1, rows_of_x])
        replay()
        torch.testing.assert_close(out, expected[token : token + 1, rows_of_x], **CLOSE)


@every_decoder
@torch.no_grad()
def test_padded_steps_change_nothing_in_a_state_with_room(name):
    module, x = in_fp64(name)
    mask = scattered_padding(3, TOKENS)
    expected = module(x, padding_mask=mask)
    state = None
    for token in range(TOKENS):
        padding = Padding(mask[:, token : token + 1])
        y, state = module.step(x[token : token + 1], padding, state)
        if token == 2:
            state = module.with_room(state, TOKENS)
        real = ~mask[:, token]
        torch.testing.assert_close(y[0, real], expected[token, real], **CLOSE)


@every_decoder
@pytest.mark.parametrize("first", [1, 30], ids=["at-the-start", "after-30-tokens"])
@torch.no_grad()
def test_room_can_be_given_at_any_step_and_grow(name, first):
    module, x = in_fp64(name)
    expected, state = module(x), None
    rooms = {first: first + 9, first + 9: first + 25, first + 25: TOKENS}
    for token in range(TOKENS):
        if token in rooms:
            state = module.with_room(state, rooms[token])
        before = None if token < first else shapes(state)
        y, state = module.step(x[token : token + 1], None, state)
        assert before in (None, shapes(state))
        torch.testing.assert_close(y, expected[token : token + 1], **CLOSE)
