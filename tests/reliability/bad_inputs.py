"""Bad input for fairseq's commands that this package refuses, and what the one line must contain.

The keys are arguments, with ``{name}`` for a file that :func:`make_files` writes.
"""

import shutil
from pathlib import Path

import torch

# To fairseq-train with Luna and Apollo.
TRAIN = {
    # Sizes and rates of the model.
    "--projection-length=0": "--projection-length 0: must be 1 or more",
    "--projection-length=x": "--projection-length: invalid int value",
    "--encoder-layers=0": "--encoder-layers 0: must be",
    "--decoder-layers=-1": "--decoder-layers -1: must be",
    "--encoder-embed-dim=0": "--encoder-embed-dim 0: must be",
    "--encoder-embed-dim=-8": "--encoder-embed-dim -8: must be",
    "--encoder-ffn-embed-dim=0": "--encoder-ffn-embed-dim 0: must be",
    "--decoder-ffn-embed-dim=-1": "--decoder-ffn-embed-dim -1: must be",
    "--encoder-attention-heads=3": "--encoder-attention-heads 3: must be 1 or more and divide --encoder-embed-dim",
    "--decoder-attention-heads=0": "--decoder-attention-heads 0: must be",
    "--encoder-projected-attention-heads=5": "--encoder-projected-attention-heads 5: must be",
    "--decoder-projected-attention-heads=0": "--decoder-projected-attention-heads 0: must be",
    "--decoder-embed-dim=8": "--decoder-embed-dim 8: must equal --encoder-embed-dim",
    "--decoder-input-dim=8": "--decoder-input-dim 8: must equal --decoder-embed-dim",
    "--decoder-output-dim=8": "--decoder-output-dim 8: must equal --decoder-embed-dim",
    "--luna-kernel-size=4": "--luna-kernel-size 4: must be an odd number",
    "--luna-kernel-size=-1": "--luna-kernel-size -1: must be an odd number",
    "--max-source-positions=0": "--max-source-positions 0: must be",
    "--max-target-positions=-4": "--max-target-positions -4: must be",
    "--dropout=1.5": "--dropout 1.5: must be",
    "--dropout=nan": "--dropout nan: must be",
    "--attention-dropout=2": "--attention-dropout 2.0: must be",
    "--activation-dropout=-1": "--activation-dropout -1.0: must be",
    "--word-dropout=1": "--word-dropout 1.0: must be",
    "--encoder-layerdrop=1.5": "--encoder-layerdrop 1.5: must be",
    "--decoder-layerdrop=-1": "--decoder-layerdrop -1.0: must be",
    "--encoder-layers-to-keep=0,0": "--encoder-layers-to-keep 0,0: must be",
    "--decoder-layers-to-keep=x": "--decoder-layers-to-keep x: must be",
    "--quant-noise-pq=2": "--quant-noise-pq 2.0: must be",
    "--quant-noise-pq-block-size=0": "--quant-noise-pq-block-size 0: must be",
    # Unsupported options and invalid choices.
    "--adaptive-input": "--adaptive-input: adaptive input is for",
    "--char-inputs": "--char-inputs: character inputs",
    "--luna-source-attention=full": "--luna-source-attention: invalid choice: 'full'",
    "--luna-source-attention=softmax --decoder-projected-attention-heads=1": "--decoder-projected-attention-heads 1:",
    "--luna-activation=relu": "--luna-activation: invalid choice: 'relu'",
    "--projection-lenght=8": "unrecognized arguments: --projection-lenght=8",
    "--arch=luna_tine": "--arch/-a: invalid choice: 'luna_tine'",
    "--optimizer=apolo": "--optimizer: invalid choice: 'apolo'",
    "--lr-scheduler=mileston": "--lr-scheduler: invalid choice: 'mileston'",
    # The optimizer and its schedule.
    "--apollo-beta=1": "beta=1.0 must be in [0, 1)",
    "--apollo-beta=nan": "beta=nan must be in [0, 1)",
    "--apollo-eps=0": "eps=0.0 must be a finite number above 0",
    "--apollo-eps=inf": "eps=inf must be a finite number above 0",
    "--apollo-rebound=trust": "--apollo-rebound: invalid choice",
    "--apollo-clip-mode=each --clip-norm=0": "--apollo-clip-mode each with --clip-norm 0.0",
    "--weight-decay=-1": "weight_decay=-1.0 must be",
    "--weight-decay-type=l2": "--weight-decay-type: invalid choice",
    "--amp": "--optimizer apollo does not go with --amp",
    "--lr=-1": "lr=-1.0 must be a finite number",
    "--lr=0.1,0.2": "--lr [0.1, 0.2] must be one rate",
    "--milestones=5,3": "--milestones [5, 3] must be",
    "--milestones=0": "--milestones [0] must be",
    "--warmup-updates=20": "--warmup-updates 20 must be at most the first of --milestones",
    "--warmup-updates=-1": "--warmup-updates -1 must be",
    "--warmup-init-lr=nan": "--warmup-init-lr nan must be",
    "--lr-decay-rate=0": "--lr-decay-rate 0.0 must be",
    "--lr-decay-rate=2": "--lr-decay-rate 2.0 must be",
    # Files.
    "--restore-file={fastformer}": "; --arch is fastformer_tiny there and luna_tiny here",
    "--save-dir={fresh} --finetune-from-model={fastformer}": "{fastformer} does not fit",
}

# To fairseq-train with the other families.
OTHER_FAMILIES = {
    "--arch=fastformer_tiny --fastformer-combine=x": "--fastformer-combine: invalid choice",
    "--arch=fastformer_tiny --fastformer-share=key": "--fastformer-share: invalid choice",
    "--arch=fastformer_tiny --fastformer-kernel-size=4": "--fastformer-kernel-size 4: must be an odd number",
    "--arch=fastformer_tiny --fastformer-kernel-size=-1": "--fastformer-kernel-size -1: must be an odd number",
    "--arch=fastformer_tiny --cross-self-attention": "--cross-self-attention: only luna supports it",
    "--arch=fastformer_tiny --decoder-attention-heads=3": "--decoder-attention-heads 3: must be",
    "--arch=fastformer_tiny --dropout=-0.1": "--dropout -0.1: must be",
    "--arch=block_tiny --num-blocks=-1": "--num-blocks -1: must be",
    "--arch=block_tiny --block-kernel-size=4": "--block-kernel-size 4: must be an odd number",
    "--arch=block_tiny --block-kernel-size=-1": "--block-kernel-size -1: must be an odd number",
    "--arch=block_tiny --decoder-block-size=0": "--decoder-block-size 0: must be",
    "--arch=block_tiny --unordered-blocks=max": "--unordered-blocks: invalid choice",
    "--arch=block_tiny --cross-self-attention": "--cross-self-attention: only luna supports it",
    "--arch=block_tiny --encoder-layerdrop=nan": "--encoder-layerdrop nan: must be",
    "--arch=mixed_tiny --source-attention=block": "--source-attention block: its blocks are of one sequence; choose",
    "--arch=mixed_tiny --num-blocks=4": "--num-blocks 4: is for block (encoder); choose that or leave the flag out",
    "--arch=mixed_tiny --attention-kernel-size=2": "--attention-kernel-size 2: must be an odd number",
    "--arch=mixed_tiny --encoder-self-attention=lineer": "--encoder-self-attention: invalid choice: 'lineer'",
}

# In place of a checkpoint, for every command that reads one.
CHECKPOINTS = {
    "{empty}": "{empty} is not a fairseq checkpoint",
    "{cut}": "{cut} is not a fairseq checkpoint",
    "{flipped}": "{flipped} is not a fairseq checkpoint",
    "{text}": "{text} is not a fairseq checkpoint",
    "{another_size}": "{another_size} does not fit",
    "{weight_missing}": "{weight_missing} does not fit",
}

# To fairseq-generate, with a good data-bin and checkpoint.
GENERATE = {
    "--model-overrides={{'projection_length':0}}": "--projection-length 0: must be",
    "--model-overrides={{'encoder_layers':5}}": "{luna} does not fit",
}


def make_files(folder: Path, data: Path, luna: Path, fastformer: Path) -> dict[str, Path]:
    """The files and folders that ``{name}`` stands for above, by name."""
    files = {"luna": luna, "fastformer": fastformer, "fresh": folder / "fresh", "input": folder / "input"}
    return {**files, **_checkpoints(folder, luna), "larger_dictionary": _larger_dictionary(folder, data)}


def _checkpoints(folder: Path, luna: Path) -> dict[str, Path]:
    whole = luna.read_bytes()
    third = len(whole) // 3
    flipped = bytes(byte ^ 0x5A for byte in whole[third : third + 2000])
    damaged = {
        "empty": b"",
        "cut": whole[: third * 2],
        "flipped": whole[:third] + flipped + whole[third + 2000 :],
        "text": b"This is no checkpoint.\n" * 10,
    }
    for name, content in damaged.items():
        (folder / f"{name}.pt").write_bytes(content)
    state = torch.load(luna, weights_only=True)
    model = state["model"]
    first = next(iter(model))
    layer = next(name for name in model if name.endswith("fc1.weight"))
    changed = {
        "another_size": {**state, "model": {**model, first: model[first][:-1]}},
        "weight_missing": {**state, "model": {name: model[name] for name in model if name != layer}},
    }
    for name, content in changed.items():
        torch.save(content, folder / f"{name}.pt")
    return {name: folder / f"{name}.pt" for name in (*damaged, *changed)}


def _larger_dictionary(folder: Path, data: Path) -> Path:
    """The data-bin with one more word in both languages."""
    copied = Path(shutil.copytree(data, folder / "larger_dictionary"))
    dictionary = (data / "dict.b.txt").read_text(encoding="utf-8")
    for language in "ab":
        (copied / f"dict.{language}.txt").write_text(f"{dictionary}word 1\n", encoding="utf-8")
    return copied
