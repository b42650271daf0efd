"""From nothing to a translation model in some minutes of a CPU core, by the commands that you would type yourself.

    python scripts/demo.py
    python scripts/demo.py --arch transformer_tiny
    python scripts/demo.py --arch mixed_tiny --attention linear

Every command is shown before it runs. What is finished is not run again, and a stopped training goes on. The score
differs by about a point between machines: sums are rounded differently, and a short training amplifies that.
"""

import re
import shlex
import subprocess
import sys
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

from fairseq_luna.command_line import CommandError, Parser, command, positive
from fairseq_luna.commands.shell_commands import USER_DIR, run_fairseq, shell, shortest
from fairseq_luna.files import make_unless_present

MAX_UPDATE, SEED = 2000, 1
LANGUAGES = ("-s", "en", "-t", "de")
CORPUS = Path(__file__).with_name("demo_corpus.py")
# What learned most of what was measured: small batches, pre-norm, a rate that ends at 0. Twelve thousand sentences of a
# grammar need no dropout.
RECIPE = (
    "--share-all-embeddings --encoder-normalize-before --decoder-normalize-before --dropout 0 "
    "--criterion label_smoothed_cross_entropy --label-smoothing 0.1 --max-tokens 400 --clip-norm 1.0 "
    "--optimizer adam --adam-betas '(0.9,0.98)' --lr 0.003 --lr-scheduler polynomial_decay --warmup-updates 300 "
    "--no-epoch-checkpoints --validate-interval 3 --log-format simple --log-interval 100"
)
ARCHITECTURES = {
    # A convolution, and slots that begin as segments of the source.
    "luna_tiny": "--arch luna_tiny --untie-luna-kv --attention-kernel-size 5 --luna-segment-bias 4",
    "fastformer_tiny": "--arch fastformer_tiny",
    "block_tiny": "--arch block_tiny",
    "mixed_tiny": "--arch mixed_tiny",
    # luna_tiny's own sizes; the architecture that fairseq calls transformer_tiny is half as wide.
    "transformer_tiny": (
        "--arch transformer --encoder-layers 4 --decoder-layers 4 --encoder-attention-heads 4 "
        "--decoder-attention-heads 4 --encoder-embed-dim 128 --decoder-embed-dim 128 "
        "--encoder-ffn-embed-dim 256 --decoder-ffn-embed-dim 256"
    ),
}
EXAMPLES = 5


@command
def main(arguments: Sequence[str] | None = None) -> None:
    parser = Parser(__doc__)
    add = parser.add_argument
    add("--arch", choices=tuple(ARCHITECTURES), default="luna_tiny", help="default: luna_tiny")
    add("--attention", metavar="NAME", help="of mixed_tiny, in encoder and decoder where it can stand there")
    add("--folder", type=Path, default=Path("demo"), help="where everything is kept; default: demo")
    add("--max-update", type=positive, default=MAX_UPDATE, help=f"default: {MAX_UPDATE}")
    add("--seed", type=int, default=SEED, help=f"default: {SEED}")
    args = parser.parse_args(arguments)
    flags = (*shlex.split(ARCHITECTURES[args.arch]), *attention_flags(args))
    data, trained = args.folder / "data", args.folder / name_of(args)
    if not (trained / "finished").exists():
        print(f"This takes about five minutes of a CPU core, and 100 MB in {args.folder}.", flush=True)
    prepare(args.folder / "corpus", data)
    train(data, trained, flags, args)
    generated = translate(data, trained)
    luna("score", generated, "--reference", data / "reference" / "test.de")
    show_examples(args.folder / "corpus", generated)
    show_next(trained)


def attention_flags(args: Namespace) -> Sequence[str]:
    if args.attention is None:
        return ()
    if args.arch != "mixed_tiny":
        raise CommandError(f"--attention {args.attention}: is for --arch mixed_tiny")
    from shared import by_name  # fairseq takes seconds to import

    if args.attention not in by_name.ATTENTIONS:
        raise CommandError(f"--attention {args.attention}: choose one of {', '.join(by_name.ATTENTIONS)}")
    return by_name.flags_for(args.attention)


def name_of(args: Namespace) -> str:
    """Another length, seed or attention is another training, with a folder of its own."""
    name = args.arch if args.attention is None else f"{args.arch}-{args.attention}"
    if (args.max_update, args.seed) == (MAX_UPDATE, SEED):
        return name
    return f"{name}-{args.max_update}-updates-seed-{args.seed}"


def prepare(texts: Path, data: Path) -> None:
    show("python", CORPUS, texts)
    run(CORPUS, texts)
    pairs = (
        word
        for split in ("train", "valid", "test")
        for word in (f"--{split}", texts / f"{split}.en", texts / f"{split}.de")
    )
    luna("prepare", *pairs, *LANGUAGES, "--vocabulary-size", 1600, "--out", data)


def train(data: Path, trained: Path, flags: Sequence[str], args: Namespace) -> None:
    updates = ("--max-update", args.max_update, "--total-num-update", args.max_update, "--seed", args.seed)
    arguments = ("--save-dir", trained, *LANGUAGES, *flags, *shlex.split(RECIPE), *updates)
    keep_command(trained, shlex.join(map(str, (*flags, *shlex.split(RECIPE), *updates))))

    def finish(marker: Path) -> None:
        fairseq("train", data, *arguments, log=trained / "train.output")
        marker.touch()

    make_unless_present("training", trained / "finished", finish)


def keep_command(trained: Path, flags: str) -> None:
    """Raises CommandError if the folder was begun with other ``flags``."""
    kept = trained / "flags.txt"
    if kept.exists() and kept.read_text(encoding="utf-8") != flags:
        raise CommandError(f"{trained} was trained with other flags, which are in {kept}: use another --folder")
    trained.mkdir(parents=True, exist_ok=True)
    kept.write_text(flags, encoding="utf-8")


def translate(data: Path, trained: Path) -> Path:
    """The file of fairseq-generate's translations of the test."""
    # Without a limit, a barely trained model would generate 200 words for every sentence.
    limits = ("--max-len-a", 1.5, "--max-len-b", 10, "--max-tokens", 4000)
    arguments = (
        *LANGUAGES,
        "--path",
        trained / "checkpoint_last.pt",
        "--beam",
        4,
        *limits,
        "--remove-bpe",
        "sentencepiece",
    )
    generated = trained / "test.generated"
    make_unless_present(
        "translations of the test", generated, lambda output: fairseq("generate", data, *arguments, log=output)
    )
    return generated


def fairseq(name: str, data: Path, *arguments: object, log: Path) -> None:
    """Run fairseq's command on ``data``; all of its output goes to ``log``, its progress to the screen."""
    words = [*map(str, (data / "bin", "--user-dir", USER_DIR, *arguments))]
    show(f"fairseq-{name}", *words)
    run_fairseq(name, words, log, show_progress)


def show_progress(line: str) -> None:
    """Print the numbers of fairseq-train that a beginner needs."""
    if found := re.search(r"train_inner \| .*loss=([\d.]+),.*wps=(\d+).*num_updates=(\d+)", line):
        loss, speed, update = found.groups()
        print(f"  update {update:>5}: loss {loss}, {speed} target tokens a second", flush=True)
    elif found := re.search(r"valid on 'valid' subset \| .*ppl ([\d.]+)", line):
        print(f"  perplexity of the validation set {found[1]}", flush=True)


def luna(*words: object) -> None:
    show("fairseq-luna", *words)
    run("-m", "fairseq_luna", *words)


def run(*words: object) -> None:
    ended = subprocess.run([sys.executable, *map(str, words)], check=False)
    if ended.returncode:
        raise CommandError(f"the command above ended with status {ended.returncode}", status=1)


def show(*words: object) -> None:
    print(f"\n$ {shell(*words)}", flush=True)


def show_examples(texts: Path, generated: Path) -> None:
    sources, references = (
        (texts / f"test.{language}").read_text(encoding="utf-8").splitlines() for language in ("en", "de")
    )
    found = re.findall(r"^D-(\d+)\t\S+\t(.*)$", generated.read_text(encoding="utf-8"), flags=re.M)
    translated = {int(number): text for number, text in found}
    exact = sum(translated[number] == reference for number, reference in enumerate(references))
    print(f"\n{exact} of {len(references)} translations are the reference, word for word. Examples:")
    for number in range(0, len(sources), len(sources) // EXAMPLES)[:EXAMPLES]:
        print(f"\n  source     {sources[number]}\n  reference  {references[number]}\n  hypothesis {translated[number]}")


def show_next(trained: Path) -> None:
    print("\nGo on in this folder:")
    print(f"    source {shlex.quote(shortest(Path(sys.prefix) / 'bin' / 'activate'))}")
    print(f"    echo 'The old teacher called me.' | fairseq-luna translate {shlex.quote(shortest(trained))}")
    print("    fairseq-luna prepare --help        # for two files of your own")


if __name__ == "__main__":
    sys.exit(main())
