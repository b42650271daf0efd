"""Configurations drawn at random: each trains, is loaded again and translates, or is refused."""

import argparse

import pytest
from fairseq.models import MODEL_REGISTRY
from fairseq.models.transformer import TransformerConfig
from fairseq.optim import OPTIMIZER_REGISTRY
from fairseq.optim.lr_scheduler import LR_SCHEDULER_REGISTRY
from hypothesis import HealthCheck, Phase, given, settings
from omegaconf import OmegaConf

import fuzz
from fuzzing import flags
from fuzzing.configurations import Configuration, Flag, configurations
from fuzzing.life import Broken
from fuzzing.outcomes import FAILED, REFUSED, TRAINED, outcome
from fuzzing.parsing import parse
from fuzzing.report import Report


def configuration(
    *typed, arch="luna", optimizer="apollo", scheduler="milestone", criterion="cross_entropy", joined=True
):
    return Configuration(arch, optimizer, scheduler, criterion, joined, tuple(map(Flag, typed)))


# Without hypothesis's shrinking, which takes minutes: scripts/fuzz.py removes the flags that are not needed.
@settings(
    max_examples=300,
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)
@given(configurations())
def test_a_configuration_trains_and_is_used_or_is_refused_in_a_line(drawn):
    seen = outcome(drawn)
    assert seen.kind != FAILED, f"{drawn}\n{seen.line}\n{seen.trace}"


MERGES = hasattr(TransformerConfig, "merge_src_tgt_embed")  # not in fairseq 0.12.2
ADAPTIVE = {"criterion": "adaptive_loss"}
# Configurations that once failed, and the refusal now; empty if they train.
FOUND = {
    "a-kept-layer-of-the-encoder-alone": (configuration("--encoder-layers-to-keep=1"), ""),
    "kept-layers-of-the-decoder-alone": (configuration("--decoder-layers-to-keep=0, 2", arch="block"), ""),
    "output-size-of-merged-embeddings": (
        configuration("--merge-src-tgt-embed", "--decoder-output-dim=4"),
        "--decoder-output-dim 4: must equal" if MERGES else "--merge-src-tgt-embed",
    ),
    "adaptive-cutoff": (
        configuration("--adaptive-softmax-cutoff=8,4", **ADAPTIVE),
        "--adaptive-softmax-cutoff [8, 4]: must be above 0 and ascending",
    ),
    "adaptive-cutoff-of-nothing": (
        configuration("--adaptive-softmax-cutoff=0", **ADAPTIVE),
        "--adaptive-softmax-cutoff [0]: must be above 0",
    ),
    "adaptive-dropout": (
        configuration("--adaptive-softmax-cutoff=8", "--adaptive-softmax-dropout=2", **ADAPTIVE),
        "--adaptive-softmax-dropout 2.0: must be at least 0 and less than 1",
    ),
    "adaptive-factor": (
        configuration("--adaptive-softmax-cutoff=8", "--adaptive-softmax-factor=inf", **ADAPTIVE),
        "--adaptive-softmax-factor inf: must be above 0 and finite",
    ),
    "adaptive-ties": (configuration("--tie-adaptive-weights"), "--tie-adaptive-weights: it needs adaptive input"),
    "adaptive-softmax-of-shared-embeddings": (
        configuration("--adaptive-softmax-cutoff=8", "--share-all-embeddings", **ADAPTIVE),
        "",
    ),
    "one-embedding-of-two-sizes": (
        configuration("--merge-src-tgt-embed", "--decoder-embed-dim=4", arch="block"),
        "--merge-src-tgt-embed",  # 0.12.2 does not have it
    ),
    "two-channels": (
        configuration("--encoder-embed-dim=2", arch="fastformer"),
        "--encoder-embed-dim 2: sinusoidal positions need 4 or more",
    ),
    "two-channels-of-the-decoder-alone": (
        configuration("--encoder-embed-dim=2", "--encoder-learned-pos"),
        "--decoder-embed-dim 2 (--encoder-embed-dim unless given): sinusoidal positions need 4 or more",
    ),
    "two-channels-of-a-pyramid": (
        configuration("--encoder-embed-dim=2", arch=flags.PYRAMID, criterion="sentence_prediction"),
        "--encoder-embed-dim 2: sinusoidal positions need 4 or more",
    ),
    "two-channels-with-learned-positions": (
        configuration("--encoder-embed-dim=2", "--encoder-learned-pos", "--decoder-learned-pos"),
        "",
    ),
}


@pytest.mark.parametrize(
    ("drawn", "said"),
    FOUND.values(),
    ids=FOUND,
)
def test_faults_found_by_fuzzing_stay_fixed(drawn, said):
    seen = outcome(drawn)
    assert seen.kind == (REFUSED if said else TRAINED), seen
    assert said in seen.line


def flags_of(registered):
    """Every flag, and the values that its parser accepts; none if it lists none."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    registered.add_args(parser)
    found = {option: set(action.choices or ()) for action in parser._actions for option in action.option_strings}
    return {option: choices for option, choices in found.items() if option not in ("-h", "--help")}


@pytest.mark.parametrize("arch", flags.MODELS)
def test_every_flag_of_a_model_is_drawn_with_every_choice(arch):
    table, found = flags.MODELS[arch], flags_of(MODEL_REGISTRY[arch])
    assert found.keys() <= table.keys()
    # The model refuses a name that cannot stand in a place.
    valid = {flag: set(values.good + values.bad * (flag in flags.NAMES)) for flag, values in table.items()}
    assert {flag: choices - valid[flag] for flag, choices in found.items() if choices - valid[flag]} == {}


def test_every_flag_of_apollo_and_of_its_schedule_is_drawn():
    assert flags_of(OPTIMIZER_REGISTRY["apollo"]).keys() <= flags.OPTIMIZERS["apollo"].keys() | flags.TRAINING.keys()
    drawn = flags.SCHEDULERS["milestone"].keys() | flags.OPTIMIZERS["apollo"].keys()
    assert flags_of(LR_SCHEDULER_REGISTRY["milestone"]).keys() <= drawn


@pytest.mark.parametrize(
    "drawn",
    [
        configuration(),
        configuration("--word-dropout=0.1", "--milestones=1,5", "--lr=0.1,0.2", "--weight-decay-type=stable", "--bf16"),
        configuration("--encoder-layers-to-keep=0,1", "--decoder-embed-dim=4", "--adaptive-softmax-cutoff=4,8"),
        configuration("--encoder-embed-path=/a b", "--share-all-embeddings", "--max-target-positions=5", joined=False),
        configuration("--pyramid-block-sizes=2, 4", arch="block_pyramid_classifier", criterion="sentence_prediction"),
    ],
    ids=["defaults", "lists", "kept-layers", "strings", "pyramid"],
)
def test_the_quick_config_is_fairseqs(drawn):
    for others in (configuration(arch=drawn.arch, criterion=drawn.criterion), drawn):
        parse(others.arguments())
    quick, slow = (OmegaConf.to_container(parse(drawn.arguments(), quickly=quickly)) for quickly in (True, False))
    assert quick == slow


def test_a_crash_leaves_no_files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    drawn = configuration("--quant-noise-pq=0.1", "--decoder-ffn-embed-dim=4")  # fairseq asserts in the first layer
    assert outcome(drawn).kind == REFUSED
    assert list(tmp_path.iterdir()) == []


def test_a_bad_value_that_trains_is_a_failure():
    seen = outcome(configuration()._replace(flags=(Flag("--dropout=0.1", is_bad=True),)))
    assert (seen.kind, seen.line) == (FAILED, "was not refused: ['--dropout=0.1']")


def test_an_error_without_a_line_is_a_failure(monkeypatch):
    monkeypatch.setattr("fuzzing.life.outputs", lambda model, batch: 1 / 0)
    assert outcome(configuration()).line == "ZeroDivisionError in fuzzing: division by zero"


def test_a_loaded_model_that_is_another_one_is_a_failure(monkeypatch):
    def saved_and_loaded(trainer, path, task):
        return task.build_model(trainer.cfg.model)

    monkeypatch.setattr("fuzzing.life.saved_and_loaded", saved_and_loaded)
    assert outcome(configuration()).line.endswith("the loaded model gives other outputs")


def test_a_weight_without_a_gradient_is_a_failure(monkeypatch):
    assert outcome(configuration(arch="luna_roberta", criterion="sentence_prediction")).kind == TRAINED
    monkeypatch.setattr("fairseq_luna.models.roberta.model.CLASSIFYING", ())
    assert (
        "no gradient: ['encoder.lm_head"
        in outcome(configuration(arch="luna_roberta", criterion="sentence_prediction")).line
    )


def test_a_line_must_name_a_flag_that_was_given(monkeypatch):
    assert outcome(configuration("--dropout=2")).kind == REFUSED
    monkeypatch.setattr("fuzzing.outcomes.UsageError.__str__", lambda error: "--attention-dropout 2: too large")
    assert outcome(configuration("--dropout=2")).line.startswith("names none of the flags given")


def test_failures_are_counted_and_shown_with_no_more_flags_than_they_need(monkeypatch, capsys):
    def train(cfg, *, joined):
        if cfg.model.dropout == 0.5:
            raise Broken("halves")

    monkeypatch.setattr("fuzzing.outcomes.train", train)
    monkeypatch.setattr("fuzzing.outcomes.use", lambda trained, folder, *, joined: None)
    report = Report()
    for given_flags in ((), ("--encoder-layers=2", "--dropout=0.5", "--export"), ("--encoder-layers=x",)):
        drawn = configuration(*given_flags)
        report.add(drawn, outcome(drawn))
    *_, said, example, _trace, counts = report.lines()
    assert said.split() == ["1", "failed:", "Broken", "in", "fuzzing:", "halves"]
    assert example.endswith("cross_entropy joined --dropout=0.5")
    assert counts == "1 trained, 1 refused, 1 failed"


def test_the_command_draws_the_same_from_a_seed(capsys):
    assert [fuzz.main(["--examples=4", "--seed=3"]) for _ in range(2)] == [0, 0]
    first, second = capsys.readouterr().out.split("for 4 configurations, seed 3\n")[:2]
    assert first.rpartition("\n")[0] == second.rpartition("\n")[0]
    assert fuzz.main(["--examples=0"]) == 2
