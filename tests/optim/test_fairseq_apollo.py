import logging

import pytest
import torch
from fairseq import optim
from fairseq.optim.lr_scheduler import build_lr_scheduler
from omegaconf import OmegaConf
from torch import nn

from commands import TRANSFORMER, train
from fairseq_luna.optim import fairseq_apollo
from fairseq_luna.optim.apollo import Apollo
from fairseq_luna.optim.fairseq_apollo import UNFLATTENED, ClipMode, FairseqApollo, FairseqApolloConfig
from fairseq_luna.optim.milestone_lr import MilestoneLRSchedule
from fairseq_luna.usage_error import UsageError
from optim.fairseq_apollo_runs import config, spy_on_steps


def parameter():
    return nn.Parameter(torch.ones(3))


def built(*flags, cfg=None):
    """The optimizer that fairseq builds."""
    return optim.build_optimizer((cfg or config(*flags)).optimizer, [parameter()])


def test_command_line_builds_the_right_objects():
    cfg = config(
        "--apollo-beta", "0.8", "--apollo-eps", "1e-3", "--apollo-rebound", "belief",
        "--apollo-clip-mode", "each", "--clip-norm", "0.1",
        "--weight-decay", "0.5", "--weight-decay-type", "stable", "--milestones", "2000,3000",
        "--lr-decay-rate", "0.5",
    )  # fmt: skip
    optimizer = built(cfg=cfg)
    scheduler = build_lr_scheduler(cfg.lr_scheduler, optimizer)
    assert isinstance(optimizer, FairseqApollo) and isinstance(optimizer.optimizer, Apollo)
    group = {k: v for k, v in optimizer.param_groups[0].items() if k != "params"}
    expected = {"lr": pytest.approx(1e-5), "beta": 0.8, "eps": 1e-3, "rebound": "belief"}
    assert group == {**expected, "weight_decay": 0.5, "weight_decay_type": "stable"}
    assert optimizer.clips_each and optimizer.cfg.clip_norm == 0.1
    assert isinstance(scheduler, MilestoneLRSchedule)
    rates = [scheduler.step_update(u) for u in (1000, 1999, 2000, 3000)]
    assert rates == pytest.approx([0.01, 0.01, 0.005, 0.0025])


def test_command_line_defaults_are_the_optimizers():
    cfg = config()
    wrapped = built(cfg=cfg)
    assert wrapped.optimizer.defaults == Apollo([parameter()], lr=0.01).defaults
    assert build_lr_scheduler(cfg.lr_scheduler, wrapped).milestones == []


def test_hydra_config_and_a_config_of_its_own():
    own = {"_name": "apollo", "weight_decay_type": "decoupled"}
    optimizer = built(cfg=OmegaConf.create({"optimization": {"lr": [0.02]}, "optimizer": own}))
    assert optimizer.optimizer_config["weight_decay_type"] == "decoupled"
    assert optimizer.get_lr() == 0.02
    alone = FairseqApollo(OmegaConf.structured(FairseqApolloConfig(lr=[0.1])), [parameter()])
    assert alone.get_lr() == 0.1 and not alone.supports_flat_params


def test_another_optimizers_state_is_refused_in_one_line():
    p = parameter()
    p.grad = torch.ones(3)
    other = torch.optim.Adam([p], lr=0.1)
    other.step()
    with pytest.raises(UsageError, match=r"--optimizer apollo: Apollo: .*another optimizer wrote it"):
        built().load_state_dict(other.state_dict())


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        ({"apollo_eps": 1e-6}, "--optimizer-overrides apollo_eps: Apollo has lr, beta, eps, rebound, weight_decay"),
        ({"weight_decay_type": "l2"}, "weight_decay_type='l2' must be one of"),
        ({"beta": 1.0}, "beta=1.0 must be in"),
    ],
    ids=["name", "choice", "range"],
)
def test_overrides_are_checked(overrides, said):
    state, resumed = built().state_dict(), built()
    resumed.load_state_dict(state, {"eps": 1e-6})
    assert resumed.param_groups[0]["eps"] == 1e-6
    with pytest.raises(UsageError, match=said):
        resumed.load_state_dict(state, overrides)


def test_clipping_each_is_refused_in_a_composite_optimizer():
    apollo = OmegaConf.structured(FairseqApolloConfig(apollo_clip_mode=ClipMode("each")))
    composite = {"_name": "composite", "groups": {"default": {"optimizer": apollo}}}
    cfg = OmegaConf.create({"optimization": {"lr": [0.1], "clip_norm": 0.1}, "optimizer": composite})
    with pytest.raises(UsageError, match="--apollo-clip-mode each: fairseq's composite optimizer clips the total norm"):
        FairseqApollo(cfg.optimizer.groups.default.optimizer, [parameter()])


@pytest.mark.parametrize(
    ("flags", "said"),
    {
        "--ddp-backend=fully_sharded": "--optimizer apollo does not go with --ddp-backend fully_sharded.*: use",
        "--use-sharded-state": "--optimizer apollo does not go with --use-sharded-state.*: use",
        "--amp": "--optimizer apollo does not go with --amp.*: use",
        "--fp16": "--optimizer apollo does not go with --fp16 alone.*: use",
        **{
            f"--apollo-clip-mode=each --clip-norm={norm}": "--apollo-clip-mode each with --clip-norm .*: give a norm"
            for norm in ("-1", "0", "nan")
        },
    }.items(),
)
def test_unsupported_options_are_refused(flags, said):
    with pytest.raises(UsageError, match=f"^{said}") as error:
        built(*flags.split())
    assert "\n" not in str(error.value)


def test_fp16_that_does_not_flatten_and_sharding_of_whole_tensors_are_allowed():
    for option in UNFLATTENED:
        cfg = config("--fp16")
        cfg.common[option] = True
        assert built(cfg=cfg), option
    assert built("--zero-sharding", "os", "--ddp-backend", "legacy_ddp")


FITS = ("--lr=0.1", "--warmup-updates=100")
WARNED = {
    **{
        (*FITS, f"--lr-scheduler={scheduler}", f"--warmup-updates={warmup}"): said
        for scheduler in ("milestone", "inverse_sqrt", "fixed")
        for warmup, said in ((1, "--warmup-updates 1 is"), (99, "--warmup-updates 99 is too few"), (4000, None))
    },
    FITS: None,
    (*FITS, "--lr=0.25"): "--lr 0.25 is fairseq's default and high for Apollo: give --lr 0.1, the authors' learning"
    " rate",
}


@pytest.mark.parametrize(("flags", "said"), WARNED.items(), ids=map(" ".join, WARNED))
def test_a_short_warm_up_and_fairseqs_default_rate_are_warned_of(flags, said, caplog):
    with caplog.at_level(logging.WARNING, logger=fairseq_apollo.__name__):
        built(*flags)
    found = [record.getMessage() for record in caplog.records if record.name == fairseq_apollo.__name__]
    assert len(found) == (said is not None) and all(line.startswith(said) for line in found)


def test_a_closures_gradients_are_scaled_clipped_and_used():
    param = nn.Parameter(torch.tensor([3.0, 4.0]))
    optimizer = optim.build_optimizer(config("--apollo-clip-mode", "each", "--clip-norm", "2").optimizer, [param])
    seen, calls = spy_on_steps(optimizer), []

    @torch.no_grad()
    def step(size, scale):
        def closure():
            calls.append(torch.is_grad_enabled())
            optimizer.zero_grad()
            (size * param.norm()).backward()

        optimizer.step(closure, scale=scale)

    step(size=2.0, scale=2.0)
    step(size=6.0, scale=2.0)
    assert calls == [True, True] and seen == [pytest.approx([1.0]), pytest.approx([2.0], rel=1e-5)]


def test_clipping_each_is_left_to_apollo_by_the_trainer(tiny_data, tmp_path, monkeypatch):
    told, clipped = [], []
    original = FairseqApollo.clip_grad_norm

    def spy(self, max_norm, aggregate_norm_fn=None):
        told.append(max_norm)
        return original(self, max_norm, aggregate_norm_fn)

    monkeypatch.setattr(FairseqApollo, "clip_grad_norm", spy)
    monkeypatch.setattr(fairseq_apollo, "clip_each", lambda grads, norm: clipped.append(norm))
    flags = (*TRANSFORMER, "--optimizer=apollo", "--max-update=2", "--clip-norm=0.25")
    train(tiny_data, tmp_path / "each", *flags, "--apollo-clip-mode=each")
    assert (told, clipped) == ([0.0, 0.0], [0.25, 0.25])
    told.clear()
    train(tiny_data, tmp_path / "total", *flags)
    assert (told, clipped) == ([0.25, 0.25], [0.25, 0.25])
