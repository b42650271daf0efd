"""Several processes train like one with gradient accumulation, also after a resume."""

import pytest
import torch

from commands import APOLLO, FAMILIES, SIZES, USER_DIR, on_processes, run, torchrun
from fairseq_luna.models.shared import compiled_layers
from small_training import logged, updates
from tiny_training import trained_weights

# Features are drawn again after the second and the fourth update.
PERFORMER = (
    *("--arch=mixed_tiny", "--encoder-self-attention=performer", "--decoder-self-attention=performer"),
    *("--redraw-features=2", *SIZES),
)
# Centroids move by the clusters of all processes; the words of these sentences are in several clusters.
ROUTING = (
    *("--arch=mixed_tiny", "--encoder-self-attention=routing", "--decoder-self-attention=routing"),
    *("--attention-window=2", "--num-clusters=4", *SIZES),
)
# Each process draws its own dropout masks and blocks, so nothing else random is used here.
FIXED = (
    *("--dropout=0", "--attention-dropout=0", "--activation-dropout=0", "--clip-norm=1"),
    *("--batch-size=4", "--num-workers=0", "--cpu", "--no-epoch-checkpoints", "--disable-validation"),
    *("--max-update=5", "--log-format=json", "--log-interval=1"),
)
# Sums of gradients over processes and over batches differ in order. Measured after five updates of Apollo:
# no difference between two processes and one, 1.2e-7 between four and one; ATOL is eight times that.
ATOL = 1e-6
# The losses are logged with three decimals and were the same; the last decimal may be rounded differently.
LOSS_ATOL = 1.1e-3


def arguments(data, save_dir, family, *more):
    models = {**FAMILIES, "performer": PERFORMER, "routing": ROUTING, "compiled": FAMILIES["luna"]}
    model = (flag for flag in models[family] if flag != "--random-blocks")
    flags = (*model, *APOLLO, *FIXED, *more)
    return [data, f"--user-dir={USER_DIR}", f"--save-dir={save_dir}", *flags]


def losses(records):
    return [float(record["loss"]) for record in records]


def on_several(processes, given):
    """Train in several processes and return the losses."""
    # The processes of torchrun import fairseq, which takes each of them seconds, so only one case has torchrun.
    start = torchrun if "--ddp-backend=pytorch_ddp" in given else on_processes
    log = logged(start(processes, "train", *given))
    return losses(record for (kind, _), record in log.items() if kind == "train_inner")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("family", "backend", "processes"),
    [
        ("luna", "c10d", 4),
        ("fastformer", "legacy_ddp", 2),
        ("block", "pytorch_ddp", 2),
        ("performer", "c10d", 2),
        ("routing", "legacy_ddp", 2),
        ("compiled", "c10d", 2),
        pytest.param("compiled", "legacy_ddp", 2, marks=pytest.mark.inductor),
    ],
)
def test_processes_equal_one_with_update_freq(tiny_data, tmp_path, monkeypatch, caplog, family, backend, processes):
    monkeypatch.setattr(compiled_layers, "BACKEND", "inductor" if backend == "legacy_ddp" else "eager")  # in forks too
    caplog.set_level("INFO")
    run("train", *arguments(tiny_data, tmp_path / "one", family, f"--update-freq={processes}"))
    expected = losses(updates(caplog))
    flags = (f"--ddp-backend={backend}", *(("--compile-layers",) if family == "compiled" else ()))
    several = arguments(tiny_data, tmp_path / "several", family, *flags)
    # A checkpoint has the sums of clusters of the first process alone: there a resume is not exact.
    ends = (3, 5) if family == "fastformer" else (5,)
    found = [loss for end in ends for loss in on_several(processes, [*several, f"--max-update={end}"])]

    assert len(expected) == 5
    assert found == pytest.approx(expected, abs=LOSS_ATOL)
    weights, wanted = (
        {
            name: x
            for name, x in trained_weights(tmp_path / folder / "checkpoint_last.pt").items()
            if "_sums" not in name
        }
        for folder in ("several", "one")
    )
    torch.testing.assert_close(weights, wanted, rtol=0, atol=ATOL)
