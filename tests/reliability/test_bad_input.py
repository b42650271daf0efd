"""Bad input to fairseq's commands ends in one line that names the flag or the file, and no checkpoint is changed.

What each model, Apollo and its schedule refuse is tested with them; here are one case of each kind, and all of files.
If a crash has damaged the last checkpoint, the line names another one, and training continues from that.
The keys of the tables are arguments, with ``{name}`` for a file of the fixture ``files``.
"""

import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from commands import APOLLO, FAMILIES, SIZES, USER_DIR, arguments, generate, run, train
from fairseq_luna.compat import refused_checkpoints
from fairseq_luna.usage_error import UsageError
from reliability.refusal import fingerprint, refusal

# To fairseq-train with Luna and Apollo, except where an --arch is given.
TRAIN = {
    "--projection-length=0": "--projection-length 0: must be 1 or more",
    "--projection-length=x": "--projection-length: invalid int value",
    "--projection-lenght=8": "unrecognized arguments: --projection-lenght=8",
    "--arch=luna_tine": "--arch/-a: invalid choice: 'luna_tine'",
    "--arch=mixed_tiny --num-blocks=4": "--num-blocks 4: is for block (encoder); choose that or leave the flag out",
    "--apollo-beta=1": "--optimizer apollo: Apollo: beta=1.0 must be in [0, 1)",
    "--apollo-clip-mode=each --clip-norm=0": "--apollo-clip-mode each with --clip-norm 0.0",
    "--amp": "--optimizer apollo does not go with --amp",
    "--lr=0.1,0.2": "--lr [0.1, 0.2] must be one learning rate",
    "--milestones=5,3": "--milestones [5, 3] must be",
    "--restore-file={fastformer}": "; --arch is fastformer_tiny there and luna_tiny here",
    "--save-dir={fresh} --finetune-from-model={fastformer}": "{fastformer} does not fit",
}
# In place of a checkpoint, for every command that reads one.
DAMAGED = {f"{{{name}}}": f"{{{name}}} is not a fairseq checkpoint" for name in ("empty", "cut", "flipped", "text")}
CHECKPOINTS = DAMAGED | {f"{{{name}}}": f"{{{name}}} does not fit" for name in ("another_size", "weight_missing")}
# To fairseq-generate, with a good data-bin and checkpoint.
GENERATE = {
    "--model-overrides={{'projection_length':0}}": "--projection-length 0: must be",
    "--model-overrides={{'encoder_layers':5}}": "{luna} does not fit",
    "--path={luna}:{another_size}": "{luna}:{another_size} does not fit",
}


def table(entries):
    """Parametrise by a table; the ids are its keys."""
    return pytest.mark.parametrize(("given", "said"), entries.items(), ids=list(entries))


@pytest.fixture(scope="module")
def files(tiny_data, tmp_path_factory):
    """A good checkpoint of two families, and everything that the tables name."""
    folder, found = tmp_path_factory.mktemp("bad-input"), {}
    for name in ("luna", "fastformer"):
        found[name] = train(tiny_data, folder / f"trained-{name}", *FAMILIES[name], *APOLLO, "--max-update=2")
    whole, state = found["luna"].read_bytes(), torch.load(found["luna"], weights_only=True)
    third, model = len(whole) // 3, state["model"]
    first, layer = "encoder.packed_embeddings", "encoder.layers.0.fc1.weight"
    contents = {
        "empty": b"",
        "cut": whole[: third * 2],
        "flipped": whole[:third] + bytes(byte ^ 0x5A for byte in whole[third : third + 2000]) + whole[third + 2000 :],
        "text": b"This is no checkpoint.\n" * 10,
        "another_size": {**model, first: model[first][:-1]},
        "weight_missing": {name: weight for name, weight in model.items() if name != layer},
    }
    for name, content in contents.items():
        found[name] = folder / f"{name}.pt"
        if isinstance(content, bytes):
            found[name].write_bytes(content)
        else:
            torch.save({**state, "model": content}, found[name])
    found["larger_dictionary"] = Path(shutil.copytree(tiny_data, folder / "larger_dictionary"))
    for dictionary in found["larger_dictionary"].glob("dict.*.txt"):
        dictionary.write_text(dictionary.read_text(encoding="utf-8") + "word 1\n", encoding="utf-8")
    return {**found, "fresh": folder / "fresh", "input": folder / "input"}


@pytest.fixture
def refuse(files, tiny_data, tmp_path, capsys):
    """Commands that must be refused in a folder with a checkpoint, which must not change."""
    shutil.copy(files["luna"], tmp_path / "checkpoint_last.pt")
    before = fingerprint(tmp_path)

    def check(command, said, *arguments):
        line = refusal(capsys, command, *(str(argument).format(**files) for argument in arguments))
        assert said.format(**files) in line
        assert before.items() <= fingerprint(tmp_path).items()

    def training(given, said):
        model = SIZES if "--arch" in given else FAMILIES["luna"]
        flags = (*model, *APOLLO, "--max-update=4", "--disable-validation", *given.split())
        check("train", said, *arguments(tiny_data, tmp_path, *flags))

    def reading(command, given, said, *, data=tiny_data):
        fixed = (data, f"--user-dir={USER_DIR}", "--path={luna}", "--cpu", "--num-workers=0")
        fixed += {
            "generate": ("--gen-subset=valid", "--max-len-b=8"),
            "interactive": ("--source-lang=a", "--target-lang=b", "--max-len-b=8"),
            "validate": ("--task=translation", "--valid-subset=valid", "--batch-size=4"),
            "eval_lm": ("--task=translation",),
        }[command]
        check(command, said, *fixed, *given.split())

    return SimpleNamespace(training=training, reading=reading)


@table(TRAIN)
def test_flags_of_training(refuse, given, said):
    refuse.training(given, said)


@table(CHECKPOINTS)
def test_checkpoints_to_generate_with(refuse, given, said):
    refuse.reading("generate", f"--path={given}", said)


# All commands load in the same way; these two are damaged in different ways.
@table({name: CHECKPOINTS[name] for name in ("{cut}", "{another_size}")})
@pytest.mark.parametrize("flag", ["restore-file", "finetune-from-model", "interactive", "validate", "eval_lm"])
def test_checkpoints_to_train_from_and_to_read(refuse, files, flag, given, said):
    if flag in ("interactive", "validate", "eval_lm"):
        refuse.reading(flag, f"--path={given}", said)
    else:
        refuse.training(f"--{flag}={given} --save-dir={{fresh}}", said)
        assert list(files["fresh"].iterdir()) == []


@table(GENERATE)
def test_flags_of_generation(refuse, given, said):
    refuse.reading("generate", given, said)


def test_with_loglevel_debug_the_causes_are_shown(files, tiny_data, capsys, monkeypatch):
    monkeypatch.setenv("LOGLEVEL", "DEBUG")
    with pytest.raises(UsageError) as raised:
        generate(tiny_data, str(files["another_size"]))
    sys.excepthook(raised.type, raised.value, raised.tb)
    printed = capsys.readouterr().err
    assert "RuntimeError: Error(s) in loading state_dict" in printed
    assert "The above exception was the direct cause" in printed
    assert "encoder.packed_embeddings is (3, 16), the model's is (4, 16)" in printed.splitlines()[-1]


def test_errors_of_other_code_keep_their_traceback(capsys):
    with pytest.raises(RuntimeError) as raised:
        raise RuntimeError("--beam of my own")
    sys.excepthook(raised.type, raised.value, raised.tb)
    printed = capsys.readouterr().err
    assert printed.startswith("Traceback") and printed.splitlines()[-1] == "RuntimeError: --beam of my own"


def test_a_data_bin_of_another_vocabulary(refuse):
    refuse.reading("generate", "", "{luna} does not fit", data="{larger_dictionary}")


@pytest.mark.parametrize(
    ("lines", "translated"),
    [(b"\nw1\n\n", 3), (b"", 0), (b"  \t \n", 1), (b"unheard of\n", 1), (b"w1 \x00 w2\r\nw3\r\n", 2)],
    ids=["empty-lines", "no-lines", "blanks", "unknown-words", "nul-and-crlf"],
)
def test_odd_lines_are_translated_line_for_line(files, tiny_data, capsys, lines, translated):
    files["input"].write_bytes(lines)
    run(
        *("interactive", tiny_data, f"--user-dir={USER_DIR}", f"--path={files['luna']}", "--cpu", "--max-len-b=8"),
        *("--source-lang=a", "--target-lang=b", f"--input={files['input']}"),
    )
    assert re.findall(r"^H-(\d+)", capsys.readouterr().out, flags=re.M) == [str(n) for n in range(translated)]


@pytest.mark.slow
def test_a_refusal_of_a_process_of_its_own_is_one_line(files, tiny_data, tmp_path):
    """There the root logger and ``sys.excepthook`` are the command's, as in tests/compat/test_saving.py."""
    given = (tiny_data, "--cpu", f"--user-dir={USER_DIR}", "-s=a", "-t=b", f"--path={files['another_size']}")
    command = [sys.executable, "-m", "fairseq_cli.interactive", *given]
    ended = subprocess.run(command, cwd=tmp_path, input="w1 w2\n", capture_output=True, text=True, timeout=300)
    printed = ended.stdout + ended.stderr
    # What the plugin printed, logged or warned of. Any other line may name a folder called fairseq_luna.
    [line] = re.findall(rf"^fairseq_luna.*|\| fairseq_luna.*|^{re.escape(USER_DIR)}/.*", printed, re.MULTILINE)
    assert ended.returncode == 1 and "Traceback" not in printed
    said = "/another_size.pt does not fit the model: encoder.packed_embeddings is (3, 16), the model's is (4, 16)"
    assert line.startswith("fairseq_luna: error: ") and said in line
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kept", [0.0, 0.7], ids=["empty", "truncated"])
def test_if_the_last_checkpoint_is_damaged_the_previous_one_is_named_and_usable(tiny_data, tmp_path, capsys, kept):
    flags = (*FAMILIES["luna"], *APOLLO, "--disable-validation", "--save-interval-updates=2")
    last = train(tiny_data, tmp_path, *flags, "--max-update=3")
    whole = last.read_bytes()
    last.write_bytes(whole[: int(kept * len(whole))])
    before = fingerprint(tmp_path)
    line = refusal(capsys, "train", *arguments(tiny_data, tmp_path, *flags, "--max-update=5"))
    assert line.startswith(f"fairseq_luna: error: {last} is not a fairseq checkpoint or is damaged")
    assert fingerprint(tmp_path) == before
    named = re.search(r"such as (\S+), with --restore-file", line)[1]
    assert re.fullmatch(r"checkpoint_\d+_2\.pt", named.removeprefix(f"{tmp_path}/"))
    train(tiny_data, tmp_path, *flags, "--max-update=5", f"--restore-file={named}")
    assert torch.load(last, weights_only=True)["optimizer_history"][-1]["num_updates"] == 5


def test_no_other_damaged_one_is_named(tmp_path):
    last = tmp_path / "checkpoint_last.pt"
    for name in (last.name, "checkpoint3.pt"):
        (tmp_path / name).write_bytes(b"cut")
    assert refused_checkpoints.another(last) is None
    torch.save({}, tmp_path / "checkpoint2.pt")
    assert refused_checkpoints.another(last) == tmp_path / "checkpoint2.pt"
