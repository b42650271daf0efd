"""fairseq's commands, in this process and through their real parsers."""

import importlib
import subprocess
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pytest
import torch
from fairseq import checkpoint_utils
from fairseq.dataclass import utils
from fairseq.logging import metrics

import fairseq_luna.models  # noqa: F401 (in this process fairseq may find the package imported already)
from forks import Fork, in_processes
from harness.parsing import quick_compose

USER_DIR = str(Path(__file__).parents[2] / "fairseq_luna")

SIZES = (
    *("--encoder-layers=2", "--encoder-embed-dim=16", "--encoder-ffn-embed-dim=16", "--encoder-attention-heads=2"),
    *("--decoder-layers=2", "--decoder-attention-heads=2", "--share-all-embeddings"),
)
# One architecture of each family, small enough to train in a second.
FAMILIES = {
    "luna": ("--arch=luna_tiny", "--projection-length=4", *SIZES),
    "luna-untied-prenorm": (
        *("--arch=luna_base_untied", "--projection-length=4", "--luna-activation=elu"),
        *("--encoder-normalize-before", "--decoder-normalize-before", *SIZES),
    ),
    "fastformer": ("--arch=fastformer_tiny", *SIZES),
    "block": ("--arch=block_tiny", "--decoder-block-size=3", "--random-blocks", *SIZES),
    "mixed": (
        *("--arch=mixed_tiny", "--encoder-self-attention=fastformer", "--fastformer-combine=sum"),
        *("--decoder-self-attention=block", "--decoder-block-size=3", "--attention-kernel-size=3", *SIZES),
    ),
}
# fairseq's own model, in one layer.
TRANSFORMER = (
    *("--arch=transformer", "--optimizer=adam", "--lr=0.01", "--criterion=label_smoothed_cross_entropy"),
    *("--encoder-layers=1", "--encoder-embed-dim=16", "--encoder-ffn-embed-dim=16", "--encoder-attention-heads=2"),
    *("--decoder-layers=1", "--decoder-embed-dim=16", "--decoder-ffn-embed-dim=16", "--decoder-attention-heads=2"),
)
# fairseq's tasks that read texts.
READER_SIZES = SIZES[:4]
MASKED_LM = ("--task=masked_lm", "--criterion=masked_lm", "--tokens-per-sample=30", "--sample-break-mode=eos")
CLASSIFY = (
    *("--task=sentence_prediction", "--criterion=sentence_prediction", "--num-classes=2", "--max-positions=30"),
    *("--init-token=0", "--separator-token=2", "--shorten-method=truncate"),
)
APOLLO = (
    "--criterion=label_smoothed_cross_entropy",
    *("--optimizer=apollo", "--lr=0.01", "--weight-decay=1e-8"),
    *("--lr-scheduler=milestone", "--milestones=14,18", "--warmup-updates=6", "--warmup-init-lr=1e-5"),
)


def on_device(arguments: Sequence[str], more: Sequence[str] = ()) -> list[str]:
    """The arguments where tests run: on a GPU ``more`` in place of --cpu."""
    on_gpu = torch.get_default_device().type == "cuda"
    return [*(x for x in arguments if x != "--cpu"), *more] if on_gpu else [*arguments]


def run(command: str, *arguments: str) -> None:
    """Call the command line ``command`` with ``arguments``, as a fresh process would; on a GPU without --cpu."""
    given = on_device(arguments)
    metrics.reset()
    vars(checkpoint_utils.save_checkpoint).pop("best", None)
    with pytest.MonkeyPatch.context() as patch, torch.device("cpu"):
        patch.setattr(sys, "argv", [f"fairseq-{command}", *given])
        patch.setattr(utils, "compose", quick_compose)
        importlib.import_module(f"fairseq_cli.{command.replace('-', '_')}").cli_main()


def arguments(data: str, save_dir: Path, *more: str) -> list[str]:
    """Of a training: ``more`` names the model and the optimizer."""
    return [
        *(data, f"--user-dir={USER_DIR}", f"--save-dir={save_dir}", "--cpu", "--num-workers=0", "--batch-size=8"),
        *("--no-epoch-checkpoints", "--log-format=simple", "--log-interval=1000", "--data-buffer-size=0", *more),
    ]


def train(data: str, save_dir: Path, *more: str) -> Path:
    """Train and return the last checkpoint."""
    run("train", *arguments(data, save_dir, *more))
    return save_dir / "checkpoint_last.pt"


def torchrun(processes: int, command: str, *arguments: str) -> str:
    """Run a command of fairseq's in several processes, and return what they print."""
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={processes}"]
    launch += ["--no-python", str(Path(sys.executable).with_name(f"fairseq-{command}"))]
    # They may share one GPU, which NCCL refuses.
    given = on_device(arguments, ("--device-id=0", "--distributed-backend=gloo"))
    ended = subprocess.run([*launch, *given], capture_output=True, text=True, timeout=900)
    assert ended.returncode == 0, ended.stderr[-2000:]
    return ended.stdout + ended.stderr


def on_processes(count: int, command: str, *arguments: str) -> str:
    """Run a command of fairseq's in several processes, and return what they print: forks, and on a GPU torchrun's."""
    if torch.get_default_device().type == "cuda":
        return torchrun(count, command, *arguments)
    return in_processes(count, partial(run, command, *arguments))


def start(command: str, arguments: Sequence[str]) -> Fork:
    """A fork that stands for the process of ``shell_commands.start_fairseq``."""
    return Fork(partial(run, command, *arguments))


def generate(data: str, checkpoints: str, *arguments: str) -> None:
    run(
        "generate",
        *(data, f"--user-dir={USER_DIR}", f"--path={checkpoints}", "--cpu", "--gen-subset=valid"),
        *("--num-workers=0", "--max-len-b=8", *arguments),
    )
