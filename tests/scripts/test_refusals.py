"""Scripts refuse bad input in one line with their name, and write nothing."""

import shlex
from pathlib import Path

import pytest

import benchmark
import demo
import plot_attention
import plot_curves
import prepare_labelled

MAPS = "x.pt --source w1 --output"
REFUSED = {
    benchmark: {
        "": "COMMAND",
        "op --threads two": "argument --threads: 'two' must be",
        "op --systems softmax": "--reference luna-naive: not among",
        "op --json nowhere/x.json": "--json nowhere/x.json: is a folder, or is in none",
        "train --systems lune": "'lune'",
        "train --systems luna luna --reference luna": "name each once",
        "train --shapes 25x0": "'25x0'",
        "train --memory --no-peak": "--memory --no-peak",
        "train --optimizer adam --dtype bfloat16": "--optimizer adam",
        "train --heads 3 --shapes 4x1 --systems luna transformer": "--encoder-attention-heads 3",
        "generate --lengths 2": "--lengths 2",
        "generate --beam 50 --vocabulary 40": "--beam 50",
        "optimizer --parameters 5": "--tensors",
    },
    demo: {
        "--arch lune_tiny": "argument --arch: invalid choice: 'lune_tiny'",
        "--attention softmax": "--attention softmax: is for --arch mixed_tiny",
        "--arch mixed_tiny --attention lineer": "--attention lineer: choose one of adaptive-span, ",
    },
    plot_attention: {
        f"{MAPS} maps.pdf": "maps.pdf: the name must end in .png",
        f"{MAPS} no/maps.png": "is a folder, or is in none",
        f"{MAPS} here.png": "here.png: it exists; give another name, or --force",
    },
    plot_curves: {
        "--output x.png none.json": "none.json: No such file or directory",
        "--output x.png simple.log": "simple.log: no JSON lines of fairseq-train's; train with --log-format json",
        "--output x.png none=json.log json.log json.log": "is the name of two runs; give NAME=",
    },
    prepare_labelled: {
        "text": "required: --from-dir",
        "image --from-dir /nowhere": "--from-dir /nowhere: no such folder",
        "listops --shortest 50 --length 40": "--shortest 50 --length 40: ",
        "listops --length 2001": "--length 2001: the recipes read at most 2000",
        "retrieval --from-dir . --length 4001": "--length 4001: the recipes read at most 4000",
    },
}
CASES = [(script, given, said) for script, cases in REFUSED.items() for given, said in cases.items()]
FILES = {"here.png": "mine", "simple.log": "epoch 001: | loss 3 | num_updates 10\n", "json.log": '{"num_updates": 1}\n'}


@pytest.mark.parametrize(("script", "given", "said"), CASES, ids=[f"{x.__name__} {given}" for x, given, _ in CASES])
def test_bad_input_is_refused_in_one_line(script, given, said, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for name, content in FILES.items():
        Path(name).write_text(content)
    assert script.main(shlex.split(given)) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith(f"{script.__name__}.py: ") and said in line
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == FILES
