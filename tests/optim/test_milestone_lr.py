from argparse import Namespace

import pytest
import torch
from fairseq.optim.lr_scheduler import build_lr_scheduler
from fairseq.optim.sgd import SGD
from omegaconf import OmegaConf

from fairseq_luna.optim.milestone_lr import MilestoneLRSchedule, MilestoneLRScheduleConfig, milestone_lr

PLAIN = {"peak": 1.0, "init": 0.0, "warmup": 0, "milestones": (), "decay": 0.1}


@pytest.mark.parametrize(
    "num_updates,options,expected",
    [
        pytest.param(0, {"warmup": 10, "init": 0.2}, 0.2, id="start_of_warmup"),
        pytest.param(1, {"warmup": 10}, 0.1, id="warming_up"),
        pytest.param(5, {"warmup": 10, "init": 0.2}, 0.6, id="middle_of_warmup"),
        pytest.param(10, {"warmup": 10, "init": 0.2}, 1.0, id="end_of_warmup"),
        pytest.param(11, {"warmup": 10, "init": 0.2}, 1.0, id="after_warmup"),
        pytest.param(5, {"warmup": 10, "milestones": (3,)}, 0.5, id="milestone_waits_for_warmup"),
        pytest.param(10, {"warmup": 10, "milestones": (3, 10)}, 1.0, id="milestones_wait_to_its_end"),
        pytest.param(11, {"warmup": 10, "milestones": (3, 10)}, 0.01, id="milestones_in_warmup_count_after"),
        pytest.param(0, {"warmup": 1, "init": 0.2}, 0.2, id="start_of_a_warmup_of_one"),
        pytest.param(1, {"warmup": 1, "init": 0.2}, 1.0, id="end_of_a_warmup_of_one"),
        pytest.param(0, {}, 1.0, id="no_warmup"),
        pytest.param(10**6, {}, 1.0, id="no_milestones"),
        pytest.param(299, {"milestones": (300, 450)}, 1.0, id="before_first"),
        pytest.param(300, {"milestones": (300, 450)}, 0.1, id="at_first"),
        pytest.param(301, {"milestones": (300, 450)}, 0.1, id="after_first"),
        pytest.param(450, {"milestones": (300, 450)}, 0.01, id="at_second"),
        pytest.param(450, {"milestones": (300, 450), "decay": 0.5}, 0.25, id="other_decay"),
    ],
)
def test_closed_form(num_updates, options, expected):
    assert milestone_lr(num_updates, **{**PLAIN, **options}) == pytest.approx(expected, rel=1e-12)


def build(**options):
    cfg = OmegaConf.structured(MilestoneLRScheduleConfig(**{"lr": [0.1], **options}))
    optimizer = SGD(OmegaConf.create({"lr": [9.0], "momentum": 0, "weight_decay": 0}), [torch.ones(1)])
    return MilestoneLRSchedule(cfg, optimizer), optimizer


def test_sets_the_optimizers_rate_from_the_first_update_on():
    scheduler, optimizer = build(milestones=[6, 8], warmup_updates=4, warmup_init_lr=0.02)
    seen = [optimizer.get_lr()]
    for update in range(1, 9):
        assert scheduler.step_update(update) == optimizer.get_lr()
        seen.append(optimizer.get_lr())
    assert seen == pytest.approx([0.02, 0.04, 0.06, 0.08, 0.1, 0.1, 0.01, 0.01, 0.001])


def test_epochs_change_nothing():
    scheduler, optimizer = build(milestones=[2])
    scheduler.step_begin_epoch(3)
    scheduler.step(3, val_loss=1.5)
    assert optimizer.get_lr() == 0.1
    assert scheduler.state_dict() == {"best": None}  # not even what differs after resuming at an epoch's end


@pytest.mark.parametrize("at", [2, 5, 6, 9])
def test_resuming_gives_the_same_rates(at):
    options = {"milestones": [6, 8], "warmup_updates": 4}
    straight, _ = build(**options)
    rates = [straight.step_update(u) for u in range(12)]
    resumed, optimizer = build(**options)
    resumed.load_state_dict(straight.state_dict())
    assert [resumed.step_update(u) for u in range(at, 12)] == rates[at:]
    assert optimizer.get_lr() == rates[-1]


def test_single_rate_may_be_a_number():
    cfg = Namespace(lr=0.1, milestones=[], lr_decay_rate=0.1, warmup_updates=0, warmup_init_lr=1e-5)
    _, optimizer = build()
    assert MilestoneLRSchedule(cfg, optimizer).step_update(5) == 0.1


@pytest.mark.parametrize("written", [[3, 5], "[3, 5]"], ids=["list", "yaml"])
def test_hydra_config(written):
    milestones = OmegaConf.create(f"milestones: {written}").milestones
    cfg = OmegaConf.create({"_name": "milestone", "lr": [0.1], "milestones": milestones})
    scheduler = build_lr_scheduler(cfg, build()[1])
    assert isinstance(scheduler, MilestoneLRSchedule)
    assert [scheduler.step_update(u) for u in (2, 3, 5)] == pytest.approx([0.1, 0.01, 0.001])


BAD = [
    ("--milestones", {"milestones": [5, 3]}),
    ("--milestones", {"milestones": [3, 3]}),
    ("--milestones", {"milestones": [0, 3]}),
    ("--lr-decay-rate", {"lr_decay_rate": 0.0}),
    ("--lr-decay-rate", {"lr_decay_rate": 1.1}),
    ("--warmup-updates", {"warmup_updates": -1}),
    ("--warmup-updates", {"warmup_updates": 4, "milestones": [3]}),
    *(("--warmup-init-lr", {"warmup_init_lr": rate}) for rate in (-1.0, float("inf"), float("nan"))),
    ("--lr", {"lr": [0.1, 0.01]}),
]
GOOD = [
    {"milestones": [1]},
    {"lr_decay_rate": 1.0, "milestones": [3]},
    {"warmup_updates": 0},
    {"warmup_updates": 3, "warmup_init_lr": 0.0},
    {"warmup_updates": 3, "milestones": [3]},
]


@pytest.mark.parametrize(("flag", "options"), BAD, ids=str)
def test_bad_options_are_named(flag, options):
    with pytest.raises(ValueError, match=f"^{flag} .* must be .*such as") as error:
        build(**options)
    assert "\n" not in str(error.value)


def test_the_ends_of_the_ranges_are_taken():
    for options in GOOD:
        build(**options)
