"""Bad input ends in one line that names the flag or the file, and no checkpoint is changed."""

import re
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from commands import APOLLO, FAMILIES, SIZES, USER_DIR, run, train
from reliability import bad_inputs
from reliability.refusal import fingerprint, refusal


def table(entries):
    """Parametrise by a table; the ids are its keys."""
    return pytest.mark.parametrize(("given", "said"), entries.items(), ids=list(entries))


@pytest.fixture(scope="module")
def files(tiny_data, tmp_path_factory):
    """A good checkpoint of two families, and everything that the tables name."""
    folder = tmp_path_factory.mktemp("bad-input")
    trained = {
        name: train(tiny_data, folder / f"trained-{name}", *FAMILIES[name], *APOLLO, "--max-update=2")
        for name in ("luna", "fastformer")
    }
    return bad_inputs.make_files(folder, Path(tiny_data), **trained)


@pytest.fixture
def refuse(files, tiny_data, tmp_path, capsys):
    """Commands that must be refused in a folder with a checkpoint, which must not change."""
    shutil.copy(files["luna"], tmp_path / "checkpoint_last.pt")
    before = fingerprint(tmp_path)

    def check(command, said, *arguments):
        line = refusal(capsys, command, *(str(argument).format(**files) for argument in arguments))
        assert said.format(**files) in line
        assert before.items() <= fingerprint(tmp_path).items()

    def training(given, said, *, family=FAMILIES["luna"]):
        fixed = (f"--user-dir={USER_DIR}", f"--save-dir={tmp_path}", "--cpu", "--num-workers=0", "--batch-size=8")
        fixed += ("--max-update=4", "--disable-validation", "--data-buffer-size=0", "--log-format=simple")
        check("train", said, tiny_data, *fixed, *family, *APOLLO, *given.split())

    def reading(command, given, said, *, data=tiny_data):
        fixed = [f"--user-dir={USER_DIR}", "--path={luna}", "--cpu", "--num-workers=0"]
        fixed += {
            "generate": ["--gen-subset=valid", "--max-len-b=8"],
            "interactive": ["--source-lang=a", "--target-lang=b", "--max-len-b=8"],
            "validate": ["--task=translation", "--valid-subset=valid", "--batch-size=4"],
        }[command]
        check(command, said, data, *fixed, *given.split())

    return SimpleNamespace(training=training, reading=reading)


@table(bad_inputs.TRAIN)
def test_flags_of_training(refuse, given, said):
    refuse.training(given, said)


@table(bad_inputs.OTHER_FAMILIES)
def test_flags_of_the_other_families(refuse, given, said):
    refuse.training(given, said, family=SIZES)


@table(bad_inputs.CHECKPOINTS)
def test_checkpoints_to_generate_with(refuse, given, said):
    refuse.reading("generate", f"--path={given}", said)


# All commands load in the same way; these three are damaged in different ways.
@table({name: bad_inputs.CHECKPOINTS[name] for name in ("{empty}", "{cut}", "{another_size}")})
@pytest.mark.parametrize("flag", ["restore-file", "finetune-from-model", "interactive", "validate"])
def test_checkpoints_to_train_from_and_to_read(refuse, files, flag, given, said):
    if flag in ("interactive", "validate"):
        refuse.reading(flag, f"--path={given}", said)
    else:
        refuse.training(f"--{flag}={given} --save-dir={{fresh}}", said)
        assert list(files["fresh"].iterdir()) == []


@table(bad_inputs.GENERATE)
def test_flags_of_generation(refuse, given, said):
    refuse.reading("generate", given, said)


@pytest.mark.parametrize("command", ["generate", "interactive", "validate"])
def test_a_data_bin_of_another_vocabulary(refuse, command):
    refuse.reading(command, "", "{luna} does not fit", data="{larger_dictionary}")


@pytest.mark.parametrize(
    "flags",
    ["--arch=block_tiny --num-blocks=1000", "--arch=block_tiny --decoder-block-size=1000", "--arch=luna_tiny"
     " --projection-length=1000", "--arch=luna_tiny --max-source-positions=4 --max-target-positions=4"],
    ids=["blocks", "block-size", "projection-length", "longer-sentences-are-left-out"],
)  # fmt: skip
def test_more_than_a_sentence_has_just_works(tiny_data, tmp_path, flags):
    assert train(
        tiny_data, tmp_path, *SIZES, *APOLLO, *flags.split(), "--max-update=2", "--disable-validation"
    ).exists()


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
