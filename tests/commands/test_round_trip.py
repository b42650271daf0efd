"""Chinese and Japanese text through prepare, training, translate and score: no character of it is changed."""
# ruff: noqa: RUF001 (full-width characters are what the text has)

import random
import re
from pathlib import Path

import pytest
import torch
from fairseq.data import Dictionary, data_utils

from commands import run
from corpus_files import text
from fairseq_luna import load
from fairseq_luna.__main__ import main
from fairseq_luna.commands.shell_commands import USER_DIR
from own_command import shown
from pasted import commands, paste

pytestmark = pytest.mark.usefixtures("fairseq_in_forks")

SENTENCES = {
    "zh": ["他说：“好的，我们走吧！”", "面积是１０⁶ 米²（约½公里）。", "你看过《红楼梦》吗？", "ＡＢＣ公司，①号楼……"],
    "ja": [
        "\u3000「はい、そうです」と言った。",
        "長さは１０㎞\u3000です（約½）。",
        "ﾃﾚﾋﾞを見ますか？",
        "か\u3099くせい・ガクセイ～",
    ],
    "fr": [
        "«\u00a0Oui\u00a0», dit-il\u202f!",
        "10\u202f000\u00a0€, soit 10⁶ cents…",
        "\U000f0009\U000f00a0 \U000f0000<\U000f003c\U000f0000\U000f0000\U000f00a0\U000f0001",  # an icon font's
    ],
}
ENGLISH = ["the old teacher", "a new book", "my brother", "three small dogs", "that house", "10⁶ people", "½ of it"]
FLAGS = "--cpu --encoder-layers 1 --decoder-layers 1 --max-update 3 --warmup-updates 1 --max-tokens 300"


def corpus(language, count):
    """Sentences that are not repeated: some of the language's, after English ones with a number."""
    draw = random.Random(0)
    return [
        (
            f"{draw.choice(ENGLISH).capitalize()}, {number}.",
            "".join(draw.choices(SENTENCES[language], k=2)) + str(number),
        )
        for number in range(count)
    ]


@pytest.mark.parametrize("language", SENTENCES)
def test_text_comes_back_as_it_was(language, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    pairs = corpus(language, 140)
    for name, side in zip(("en", language), zip(*pairs, strict=True), strict=True):
        Path(f"text.{name}").write_bytes(text(side))
    flags = ("-s", "en", "-t", language, "--workers", 1, "--vocabulary-size", 200, "--hold-out", 20, "--ratio", 9)
    said = shown(capsys, "prepare", "--train", "text.en", f"text.{language}", *flags, "--out", "data")
    assert "unknown tokens in" not in said
    train, translate, _ = commands(said)
    paste(train, FLAGS)
    paste(f"{translate.replace(' < ', ' --beam 1 --max-len-b 5 < ')}")

    reference = Path(f"data/reference/test.{language}").read_text(encoding="utf-8").split("\n")[:-1]
    assert reference == [pair[1] for pair in pairs[-20:]]
    # A perfect translation of the model: the pieces of the reference, joined as the model's output is.
    words = Dictionary.load(f"data/bin/dict.{language}.txt")
    dataset = data_utils.load_indexed_dataset(f"data/bin/test.en-{language}.{language}", words)
    tokens = [dataset[number] for number in range(len(dataset))]
    translator = load("data/checkpoints")
    assert [translator.decode(each) for each in tokens] == reference
    Path("perfect").write_bytes(text(map(translator.decode, tokens)))
    assert re.search(r"100\.0", shown(capsys, "score", "perfect", "--reference", f"data/reference/test.{language}"))
    # fairseq's own commands read the same pieces, and join them to the same text.
    assert not torch.cat(tokens).eq(words.unk()).any()
    common = ("data/bin", f"--user-dir={USER_DIR}", "--path=data/checkpoints/checkpoint_last.pt", "--cpu", "--beam=1")
    run("generate", *common, "--remove-bpe=sentencepiece", "--max-len-b=3", "--num-workers=0")
    printed = capsys.readouterr().out
    lines = {kind: dict(re.findall(rf"^{kind}-(\d+)\t(.*)$", printed, flags=re.M)) for kind in "ST"}
    assert [lines["T"][str(number)] for number in range(20)] == reference
    assert [lines["S"][str(number)] for number in range(20)] == [pair[0] for pair in pairs[-20:]]
    given = ("--bpe=sentencepiece", "--sentencepiece-model=data/joint.model", "--max-len-b=3")
    run("interactive", *common, *given, "--input=data/reference/test.en", "-s=en", f"-t={language}")
    printed = re.findall(r"^S-\d+\t(.*)$", capsys.readouterr().out, flags=re.M)
    assert [translator.bpe.decode(line) for line in printed] == [pair[0] for pair in pairs[-20:]]
    assert not any("<unk>" in line for line in printed)


def test_new_words_are_known_to_fairseq_interactive(tmp_path, monkeypatch, capsys):
    """Words that the training text has only in others, and that are cut into pieces that it has."""
    monkeypatch.chdir(tmp_path)
    pairs = [(f"mother other them {'they ' * (number % 5)}the", f"eins {number}") for number in range(60)]
    for name, side in zip(("en", "xx"), zip(*pairs, strict=True), strict=True):
        Path(f"text.{name}").write_bytes(text(side))
    flags = ("--hold-out", 3, "-s", "en", "-t", "xx", "--workers", 1, "--vocabulary-size", 90, "--out", "data")
    assert main(["prepare", "--train", "text.en", "text.xx", *map(str, flags)]) == 0
    paste(commands(capsys.readouterr().out)[0], FLAGS)
    new = "moth theother themoth Ω"
    Path("new.en").write_bytes(text([new]))
    run(
        *("interactive", "data/bin", f"--user-dir={USER_DIR}", "--path=data/checkpoints/checkpoint_last.pt", "--cpu"),
        *("--bpe=sentencepiece", "--sentencepiece-model=data/joint.model", "--input=new.en", "-s=en", "-t=xx"),
    )
    [source] = re.findall(r"^S-0\t(.*)$", capsys.readouterr().out, flags=re.M)
    assert source.split().count("<unk>") == 1
    assert source.replace(" ", "").replace("▁", " ").strip() == new.replace("Ω", "<unk>")
    translator = load("data/checkpoints")
    assert translator.src_dict.string(translator.encode(new)) == source
    assert translator.unknown_tokens(new) == (1, len(source.split()))
