"""--compile-layers: the layers are compiled in training, and everything else is as it was."""

import copy
import logging
import os
import pickle
import subprocess
import sys
from types import ModuleType, SimpleNamespace

import pytest
import torch
from torch import nn
from torch._dynamo.utils import counters
from torch._inductor import config as inductor_config

import commands
import readers
from fairseq_luna.checkpoint_files import NO_PARAMETER
from fairseq_luna.models.shared import compiled_layers
from fairseq_luna.usage_error import UsageError
from support import CLOSE, PAD, as_prefix, build_model, sentences

FAMILIES = {
    "luna": {"family": "luna"},
    "fastformer": {"family": "fastformer"},
    "block": {"family": "block"},
    "linear": {"family": "mixed", "encoder_self_attention": "linear", "decoder_self_attention": "linear"},
}
EVERY_FAMILY = pytest.mark.parametrize("flags", FAMILIES.values(), ids=FAMILIES)
# Padded or not, on either side.
BATCHES = [((9, 9), (7, 7)), ((12, 5, 8), (6, 10, 3)), ((6, 6, 6), (11, 10, 4)), ((20, 17), (13, 13))]


@pytest.fixture
def graphs(monkeypatch):
    """The graphs that the layers are compiled to, by a backend that runs them in eager mode."""
    compiled = []

    def keep(graph, inputs):
        compiled.append(graph)
        return graph.forward

    torch._dynamo.reset()
    monkeypatch.setattr(compiled_layers, "BACKEND", keep)
    return compiled


def step(model, lengths):
    """The logits at real tokens, and the gradients."""
    source, target = sentences(*lengths[0]), sentences(*lengths[1], seed=2)
    model.zero_grad()
    torch.manual_seed(3)
    out = model(source, source.ne(PAD).sum(1), as_prefix(target))[0][target.ne(PAD)]
    if model.training:
        out.square().mean().backward()
    return out.detach(), {name: p.grad for name, p in model.named_parameters() if p.grad is not None}


@EVERY_FAMILY
def test_a_training_is_the_same_and_evaluation_is_eager(flags, graphs, caplog):
    caplog.set_level(logging.INFO, compiled_layers.__name__)
    model, eager = build_model(**flags, compile_layers=True), build_model(**flags)
    assert [name for name, _ in model.named_parameters()] == [name for name, _ in eager.named_parameters()]
    assert model.state_dict().keys() == eager.state_dict().keys()
    for lengths in BATCHES:
        for each in (model, eager):
            each.train()
        torch.testing.assert_close(step(model, lengths), step(eager, lengths), **CLOSE)
        compiled = len(graphs)
        for each in (model, eager):
            each.eval()
        assert step(model, lengths)[0].equal(step(eager, lengths)[0])
        assert len(graphs) == compiled
    # One for the encoder's layers and one for the decoder's, of which luna's last one is another; block has two, for
    # texts of one block and of several.
    assert 2 <= len(graphs) <= {"luna": 3, "block": 4}.get(flags["family"], 2)
    assert sum(record.message.startswith("compiling the layers") for record in caplog.records) == 1


# tests/models/test_compiled_models.py compiles a training step with every name; here layers are compiled for any shape.
WITH_INDUCTOR = {
    **FAMILIES,
    "block-convolution": {"family": "block", "attention_kernel_size": 3},
    "nystrom": {"family": "mixed", "encoder_self_attention": "nystrom"},
}


@pytest.mark.inductor
@pytest.mark.parametrize("flags", WITH_INDUCTOR.values(), ids=WITH_INDUCTOR)
def test_a_training_is_the_same_with_the_kernels_of_inductor(flags):
    torch._dynamo.reset()
    counters.clear()
    model, eager = build_model(**flags, compile_layers=True).train(), build_model(**flags).train()
    with inductor_config.patch(fallback_random=True):
        for lengths in [*BATCHES, BATCHES[0]]:
            torch.testing.assert_close(step(model, lengths), step(eager, lengths), rtol=1e-4, atol=1e-4)
    assert counters["stats"]["unique_graphs"] >= 2 and not counters["graph_break"]


# A run of fairseq-train in miniature: a step with compiled layers, and how many graphs came from torch's cache.
STEP = """
import torch
from torch._dynamo.utils import counters
from support import PAD, as_prefix, build_model, sentences

model = build_model("fastformer", encoder_layers=1, decoder_layers=1, compile_layers=True).train()
source, target = sentences(9, 9), sentences(7, 5, seed=2)
model(source, source.ne(PAD).sum(1), as_prefix(target))[0].sum().backward()
found = counters["aot_autograd"]["autograd_cache_hit"] + counters["inductor"]["fxgraph_cache_hit"]
print("hits", found, "misses", counters["inductor"]["fxgraph_cache_miss"])
"""


@pytest.mark.inductor
def test_a_later_run_takes_its_kernels_from_torchs_cache(tmp_path):
    environment = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path)}
    found = []
    for _ in range(2):
        ended = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", STEP], env=environment, capture_output=True, text=True, timeout=900
        )
        assert ended.returncode == 0, ended.stderr[-2000:]
        _, hits, _, misses = ended.stdout.split()[-4:]
        found.append((int(hits), int(misses)))
    (_, first_misses), (later_hits, later_misses) = found
    assert first_misses >= 2 and later_hits >= 2 and later_misses == 0


def test_a_reader_is_compiled_too(graphs):
    model, eager = (readers.build("luna", compile_layers=on).train() for on in (True, False))
    for lengths in ((9, 9), (12, 5)):
        texts = sentences(*lengths)
        torch.testing.assert_close(readers.classify(model, texts), readers.classify(eager, texts), **CLOSE)
    assert len(graphs) == 2  # the last layer has no norm of the packed sequence


def test_a_compiled_model_can_be_copied_and_pickled(graphs):
    model = build_model("luna", compile_layers=True).train()
    expected = step(model, BATCHES[0])
    for copied in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        torch.testing.assert_close(step(copied, BATCHES[0]), expected, **CLOSE)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"checkpoint_activations": True}, "--checkpoint-activations"),
        ({"quant_noise_pq": 0.1}, "--quant-noise-pq 0.1"),
        ({"quant_noise_scalar": 0.5}, "--quant-noise-scalar 0.5"),
        ({"luna_kernel": "triton"}, "--luna-kernel triton"),
    ],
)
def test_what_cannot_be_compiled_is_refused(flags, message):
    with pytest.raises(UsageError) as refused:
        build_model("luna", compile_layers=True, **flags)
    assert str(refused.value) == f"--compile-layers: cannot go with {message}; give one or the other"
    with pytest.raises(UsageError, match="--compile-layers: cannot go with"):
        readers.build("luna", compile_layers=True, quant_noise_pq=0.1)


def test_a_model_that_is_sharded_is_refused(monkeypatch):
    """fairseq builds it within fairscale's enable_wrap; layers of fewer parameters than --min-params-to-wrap are not
    wrapped, but the whole model is."""
    wrap = ModuleType("fairscale.nn.wrap.auto_wrap")
    wrap.ConfigAutoWrap = SimpleNamespace(in_autowrap_context=True)
    for name in ("fairscale", "fairscale.nn", "fairscale.nn.wrap"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setitem(sys.modules, wrap.__name__, wrap)
    with pytest.raises(UsageError, match=r"^--compile-layers: cannot go with --ddp-backend fully_sharded; use"):
        compiled_layers.CompiledLayersMixin.compile_layers_in_training(nn.Module())
    wrap.ConfigAutoWrap.in_autowrap_context = False
    assert not compiled_layers.is_built_for_fsdp()


@pytest.mark.parametrize(("version", "any_number"), [("2.6.0", True), ("2.13.0", False)])
def test_code_for_any_number_of_threads_with_torch_2_6(version, any_number, monkeypatch):
    """With one thread its inductor does not add up the gradients of repeated indices: docs/reliability.md."""
    model = build_model("luna", compile_layers=True).eval()
    monkeypatch.setattr(torch, "__version__", version)
    with inductor_config.patch({"cpp.dynamic_threads": False}):
        model.train()
        assert inductor_config.cpp.dynamic_threads == any_number


def test_without_a_compiler_there_is_one_line(monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler")
    monkeypatch.setenv("PATH", "")
    with pytest.raises(UsageError, match=r"^--compile-layers: torch needs a C\+\+ compiler"):
        build_model("luna", compile_layers=True)


@pytest.mark.slow
def test_a_training_with_updates_of_two_batches_validation_and_a_resume(tiny_data, tmp_path, monkeypatch):
    monkeypatch.setattr(compiled_layers, "BACKEND", "aot_eager")
    torch._dynamo.reset()
    flags = (*commands.FAMILIES["luna"], *commands.APOLLO, "--update-freq=2", "--dropout=0")
    states = []
    for name, more in (("eager", ()), ("compiled", ("--compile-layers",))):
        for updates in (2, 4):
            path = commands.train(tiny_data, tmp_path / name, *flags, *more, f"--max-update={updates}")
        states.append(torch.load(path, weights_only=True))
    assert states[1]["cfg"]["model"]["compile_layers"]
    eager, compiled = (
        {name: value for name, value in state["model"].items() if not NO_PARAMETER.search(name)} for state in states
    )
    torch.testing.assert_close(compiled, eager, **CLOSE)
    assert states[1]["optimizer_history"][-1]["num_updates"] == 4
