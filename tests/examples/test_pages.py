"""Every command of README and the guides runs when a page is pasted from its beginning to its end.

Installations are stand-ins, trainings have one layer and few updates, and exporting a model is only parsed.
"""

import re
import shutil

import pytest

import demo_corpus
from commands import run
from fairseq_luna.__main__ import main, parser_of
from own_command import with_defaults
from recipes import ROOT
from stand_ins import run_in_shell

pytestmark = pytest.mark.usefixtures("fairseq_in_forks")

SMALL = "--cpu --encoder-layers 1 --decoder-layers 1 --max-update 20 --max-epoch 6 --warmup-updates 1 --num-workers 0"
SIZES = " ".join(f"--{side}-{size}" for side in ("encoder", "decoder") for size in ("embed-dim 32", "ffn-embed-dim 32"))
SIZES += " --encoder-attention-heads 2 --decoder-attention-heads 2"
COMMON = "-s en -t de --share-all-embeddings --optimizer adam --lr 0.003 --max-tokens 1000"
PREPARE = "fairseq-luna prepare --train text.en text.de --hold-out 250 -s en -t de --out demo/data"
TRAIN = 'fairseq-train demo/data/bin --user-dir "$(fairseq-luna info --path)"'
PAGES = ("README.md", "docs/index.md", "docs/train.md", "docs/convert.md", "docs/translate.md")
PAIRS = 160


def blocks(page):
    """The blocks of commands: those without a language; of a block with prompts, what follows them."""
    text = (ROOT / page).read_text(encoding="utf-8")
    found = [body for language, body in re.findall(r"^```(.*?)\n(.*?)^```", text, flags=re.M | re.S) if not language]
    prompts = ["\n".join(re.findall(r"^\$ (.*)$", block, flags=re.M)) for block in found]
    return [prompt or block for block, prompt in zip(found, prompts, strict=True)]


def fairseq_luna(words):
    name = words[0]
    if name == "export" or "--engine" in words:
        parser_of(name, words[1:]).parse_args(words[1:])
        return 0
    if name == "prepare":  # a small text, and a model whose translations look like nothing
        words = [*words, "--not-swapped"]
        words = ["15" if word == "250" else word for word in with_defaults(words, {"--workers": "1"})]
    if name == "translate":  # a model that has hardly been trained writes as much as it may
        words = with_defaults(words, {"--beam": "3", "--max-len-b": "4"})
    return main(list(words))


def fairseq_train(words):
    run("train", *words, *SMALL.split())  # without the best loss of an earlier test's training


def nothing(words):
    assert words


@pytest.fixture(scope="module")
def checkout(tmp_path_factory):
    """A folder with text in two languages, the demo's data, and models of it where the pages have theirs."""
    folder = tmp_path_factory.mktemp("checkout")
    lines = [pair for _, pair in zip(range(PAIRS), demo_corpus.sentences(1), strict=False)]
    for name in ("text", "new"):
        for language, side in zip(("en", "de"), zip(*lines, strict=True), strict=True):
            (folder / f"{name}.{language}").write_text("".join(f"{line}\n" for line in side), encoding="utf-8")
    programs = {"fairseq-luna": fairseq_luna, "fairseq-train": fairseq_train}
    models = {"transformer": f"transformer {SIZES}", "demo/luna_tiny": "luna_tiny"}
    trainings = [f"{TRAIN} {COMMON} --arch {arch} --save-dir {saved}" for saved, arch in models.items()]
    run_in_shell("\n".join([PREPARE, *trainings]), folder, programs)
    for other in ("luna", "checkpoints"):
        (folder / other).symlink_to("demo/luna_tiny")
    (folder / "Makefile").write_text("demo:\n\ttest -d demo/luna_tiny\n")
    (folder / ".venv" / "bin").mkdir(parents=True)
    (folder / ".venv" / "bin" / "activate").touch()
    (folder / ".venv" / "bin" / "fairseq-luna").symlink_to(folder / ".stand-ins" / "fairseq-luna")
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES)
def test_the_commands_of_a_page_run_in_their_order(page, checkout, tmp_path):
    folder = tmp_path / "fairseq_luna"
    shutil.copytree(checkout, folder, symlinks=True, ignore=shutil.ignore_patterns(".stand-ins"))
    (folder / ".venv" / "bin" / "fairseq-luna").unlink()
    (folder / ".venv" / "bin" / "fairseq-luna").symlink_to(tmp_path / ".stand-ins" / "fairseq-luna")
    pasted = blocks(page)
    if page == "README.md":  # "Run that command", which prepare prints and the page of training shows
        [place] = [number for number, block in enumerate(pasted) if "prepare --train" in block]
        pasted.insert(place + 1, next(block for block in blocks("docs/train.md") if "fairseq-train" in block))
    else:
        pasted.insert(0, "cd fairseq_luna")
    programs = {"fairseq-luna": fairseq_luna, "fairseq-train": fairseq_train}
    programs |= dict.fromkeys(("git", "pip", "python", "python3"), nothing)
    run_in_shell("\n".join(pasted), tmp_path, programs)
