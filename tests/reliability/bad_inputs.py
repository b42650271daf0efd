"""What fairseq's commands are given here that they cannot use, and what each must say.

The keys are arguments, with ``{name}`` for a file that :func:`make_files` makes; the values are in the one line.
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
    "--decoder-output-dim=8": "--decoder-output-dim 8: words in and out share",
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
    "--quant-noise-pq=0.1 --quant-noise-pq-block-size=5": "--quant-noise-pq-block-size 5: must divide",
    # What this model has not, and choices that are none.
    "--adaptive-input": "--adaptive-input: adaptive input is for",
    "--char-inputs": "--char-inputs: character inputs",
    "--luna-source-attention=full": "--luna-source-attention: invalid choice: 'full'",
    "--luna-source-attention=softmax --decoder-projected-attention-heads=1": "--decoder-projected-attention-heads 1:",
    "--luna-activation=relu": "--luna-activation: invalid choice: 'relu'",
    "--projection-lenght=8": "unrecognized arguments: --projection-lenght=8",
    "--arch=luna_tine": "--arch/-a: invalid choice: 'luna_tine'",
    "--optimizer=apolo": "--optimizer: invalid choice: 'apolo'",
    "--lr-scheduler=mileston": "--lr-scheduler: invalid choice: 'mileston'",
    "--encoder-embed-path=no-such-file": "no-such-file: No such file",
    "--adaptive-softmax-cutoff=8,16": "--adaptive-softmax-cutoff [8, 16]: needs --criterion",
    "--adaptive-softmax-cutoff=9999 --criterion=adaptive_loss": "--adaptive-softmax-cutoff",
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
    "--lr=0": "--lr 0.0: must be above 0",
    "--lr=-1": "--lr -1.0: must be above 0",
    "--lr=nan": "--lr: invalid",
    "--lr=0.1,0.2": "--lr [0.1, 0.2] must be one rate",
    "--milestones=5,3": "--milestones [5, 3] must be",
    "--milestones=0": "--milestones [0] must be",
    "--warmup-updates=20": "--warmup-updates 20 must be at most the first of --milestones",
    "--warmup-updates=-1": "--warmup-updates -1 must be",
    "--warmup-init-lr=nan": "--warmup-init-lr nan must be",
    "--lr-decay-rate=0": "--lr-decay-rate 0.0 must be",
    "--lr-decay-rate=2": "--lr-decay-rate 2.0 must be",
    "--clip-norm=-1": "--clip-norm -1.0: must be",
    "--clip-norm=nan": "--clip-norm nan: must be",
    "--update-freq=0": "--update-freq 0: must be",
    "--batch-size=0": "--batch-size 0: must be",
    "--max-tokens=0": "--max-tokens 0: must be",
    "--num-workers=-1": "--num-workers -1: must be",
    "--label-smoothing=2": "--label-smoothing 2.0: must be",
    "--validate-interval=0": "--validate-interval 0: must be",
    "--optimizer-overrides={{": "--optimizer-overrides {{: must be a dictionary",
    # Files.
    "--save-dir=/dev/null": "/dev/null",
    "--train-subset=trian": "no split trian",
    "--source-lang=x --target-lang=y": "dict.x.txt: No such file",
    "--restore-file=no-such.pt": "--restore-file no-such.pt: no such file",
    "--restore-file={folder}": "--restore-file {folder}: no such file",
    "--save-dir={fresh} --finetune-from-model=no-such.pt": "--finetune-from-model no-such.pt does not exist",
    "--restore-file={fastformer}": "{fastformer} does not fit",
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
    "--arch=fastformer_tiny --decoder-embed-dim=8": "--share-all-embeddings requires",
    "--arch=fastformer_tiny --dropout=-0.1": "--dropout -0.1: must be",
    "--arch=block_tiny --num-blocks=-1": "--num-blocks -1: must be",
    "--arch=block_tiny --block-kernel-size=4": "--block-kernel-size 4: must be an odd number",
    "--arch=block_tiny --block-kernel-size=-1": "--block-kernel-size -1: must be an odd number",
    "--arch=block_tiny --decoder-block-size=0": "--decoder-block-size 0: must be",
    "--arch=block_tiny --unordered-blocks=max": "--unordered-blocks: invalid choice",
    "--arch=block_tiny --cross-self-attention": "--cross-self-attention: only luna supports it",
    "--arch=block_tiny --encoder-layerdrop=nan": "--encoder-layerdrop nan: must be",
}

# In place of the data-bin.
DATA = {
    "{no_such}": "{no_such}: No such file",
    "{folder}": "{folder} holds no binarised pair of languages",
    "{luna}": "{luna}: Not a directory",
    "{other_words}": "--share-all-embeddings requires a joined dictionary",
    "{no_dictionary}": "dict.a.txt: No such file",
    "{latin1_dictionary}": "dict.a.txt",
    "{dictionary_without_counts}": "dict.a.txt: a line is not a word and its count",
    "{empty_index}": "train.a-b.a is damaged",
    "{cut_sentences}": "train.a-b.a.bin is cut short",
    "{no_target}": "no target side",
    "{fewer_targets}": "{fewer_targets} holds more sentences of one language",
}

# In place of a checkpoint, for every command that reads one.
CHECKPOINTS = {
    "{empty}": "{empty} is no checkpoint",
    "{cut}": "{cut} is no checkpoint",
    "{flipped}": "{flipped} is no checkpoint",
    "{text}": "{text} is no checkpoint",
    "{zeros}": "{zeros} is no checkpoint",
    "{tensor}": "{tensor} is no checkpoint",
    "{weights_alone}": "{weights_alone} is no checkpoint",
    "{no_weights}": "{no_weights} is no checkpoint",
    "{another_size}": "{another_size} does not fit",
    "{weight_missing}": "{weight_missing} does not fit",
}

# To fairseq-generate, beside a good data-bin and checkpoint.
GENERATE = {
    "--path={no_such}": "--path {no_such}: no such file",
    "--path={folder}": "{folder}: Is a directory",
    "--path=": "--path : no such file",
    "--path={unknown_architecture}": "model luna_of_tomorrow: no such architecture",
    "--gen-subset=tset": "no split tset",
    "--beam=0": "--beam 0: must be",
    "--beam=-1": "--beam -1: must be",
    "--nbest=0": "--nbest 0: must be",
    "--max-len-b=-1": "--max-len-b -1: must be",
    "--max-len-a=nan": "--max-len-a nan: must be",
    "--min-len=300": "--min-len 300: above the longest translation",
    "--lenpen=nan": "--lenpen nan: must be",
    "--unkpen=-inf": "--unkpen -inf: must be",
    "--temperature=0": "--temperature must be greater than 0",
    "--sampling-topk=5": "--sampling-topk requires --sampling",
    "--prefix-size=-1": "--prefix-size -1: must be",
    "--diverse-beam-groups=3": "--diverse-beam-groups 3: ",
    "--remove-bpe=x": "--remove-bpe x: no such symbol",
    "--bpe=sentencepiece": "sentencepiece",
    "--max-source-positions=3": "--skip-invalid-size-inputs-valid-test",
    "--model-overrides={{": "--model-overrides {{: must be a dictionary",
    "--model-overrides=__import__('os').getcwd()": "--model-overrides __import__('os').getcwd(): must be",
    "--model-overrides={{'projection_length':0}}": "--projection-length 0: must be",
    "--model-overrides={{'encoder_layers':5}}": "does not fit",
    "--num-workers=-1": "--num-workers -1: must be",
}

# Lines to fairseq-interactive, with its flags.
INTERACTIVE = {
    (b"w1 \xff\xfe w2\n", "--input={input}"): "--input {input}: not UTF-8",
    (b"w1 w2\n" + b"w1 " * 2000 + b"\n", "--input={input}"): "--skip-invalid-size-inputs-valid-test",
    (b"w1\n", "--input={no_such}"): "{no_such}: No such file",
    (b"w1\n", "--input={folder}"): "{folder}: Is a directory",
    (b"w1\n", "--input={input} --buffer-size=1 --batch-size=5"): "--batch-size cannot be larger than --buffer-size",
    (b"w1\n", "--input={input} --beam=0"): "--beam 0: must be",
}


def make_files(folder: Path, data: Path, luna: Path, fastformer: Path) -> dict[str, Path]:
    """Write everything that ``{name}`` stands for above: damaged data-bins and checkpoints, by name."""
    files = {name: folder / name for name in ("no_such", "folder", "fresh", "input")}
    files["folder"].mkdir()
    files |= {"luna": luna, "fastformer": fastformer}
    return {**files, **_checkpoints(folder, luna), **_data_bins(folder, data)}


def _checkpoints(folder: Path, luna: Path) -> dict[str, Path]:
    whole = luna.read_bytes()
    third = len(whole) // 3
    flipped = bytes(byte ^ 0x5A for byte in whole[third : third + 2000])
    damaged = {
        "empty": b"",
        "cut": whole[: third * 2],
        "flipped": whole[:third] + flipped + whole[third + 2000 :],
        "text": b"This is no checkpoint.\n" * 10,
        "zeros": bytes(1000),
    }
    for name, content in damaged.items():
        (folder / f"{name}.pt").write_bytes(content)
    state = torch.load(luna, weights_only=True)
    model, cfg = state["model"], state["cfg"]
    first = next(iter(model))
    layer = next(name for name in model if name.endswith("fc1.weight"))
    changed = {
        "tensor": torch.ones(3),
        "weights_alone": {"model": model},
        "no_weights": {key: value for key, value in state.items() if key != "model"},
        "another_size": {**state, "model": {**model, first: model[first][:-1]}},
        "weight_missing": {**state, "model": {name: model[name] for name in model if name != layer}},
        "unknown_architecture": {**state, "cfg": {**cfg, "model": {**cfg["model"], "_name": "luna_of_tomorrow"}}},
    }
    for name, content in changed.items():
        torch.save(content, folder / f"{name}.pt")
    return {name: folder / f"{name}.pt" for name in (*damaged, *changed)}


def _data_bins(folder: Path, data: Path) -> dict[str, Path]:
    names = ("other_words", "no_dictionary", "latin1_dictionary", "dictionary_without_counts")
    names += ("empty_index", "cut_sentences", "no_target", "fewer_targets", "larger_dictionary")
    bins = {name: Path(shutil.copytree(data, folder / name)) for name in names}
    dictionary = (data / "dict.b.txt").read_text(encoding="utf-8")
    (bins["other_words"] / "dict.b.txt").write_text(f"word 1\n{dictionary}", encoding="utf-8")
    for language in "ab":
        (bins["larger_dictionary"] / f"dict.{language}.txt").write_text(f"{dictionary}word 1\n", encoding="utf-8")
    (bins["no_dictionary"] / "dict.a.txt").unlink()
    (bins["latin1_dictionary"] / "dict.a.txt").write_bytes("é 1\n".encode("latin-1"))
    (bins["dictionary_without_counts"] / "dict.a.txt").write_text("w1\nw2\n", encoding="utf-8")
    (bins["empty_index"] / "train.a-b.a.idx").write_bytes(b"")
    sentences = bins["cut_sentences"] / "train.a-b.a.bin"
    sentences.write_bytes(sentences.read_bytes()[:200])
    for suffix in ("bin", "idx"):
        (bins["no_target"] / f"train.a-b.b.{suffix}").unlink()
        shutil.copy(data / f"valid.a-b.b.{suffix}", bins["fewer_targets"] / f"train.a-b.b.{suffix}")
    return bins
