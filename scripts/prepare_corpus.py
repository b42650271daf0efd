"""Prepare WMT14 or Multi30k, English-German, for fairseq.

    python scripts/prepare_corpus.py wmt14 --bpe subword-nmt --out data/wmt14_en_de
    python scripts/prepare_corpus.py multi30k --bpe sentencepiece --out data/multi30k

wmt14 trains on Europarl v7, Common Crawl and News Commentary v9 (1.2 GB), multi30k on 29,000 captions (1 MB). Files are
downloaded into --downloads, or taken from there, and used only with their published checksum; a stopped run resumes.
newstest2013, newstest2014 in full and test_2016_flickr are sacreBLEU's own, which it keeps in ~/.sacrebleu or
$SACREBLEU. --out then has bin/, reference/ (raw text for scoring) and codes or joint.model.

--bpe sentencepiece: joint pieces of raw text. --bpe subword-nmt: joint merges of Moses' tokens, in lower case for
multi30k, as in most published numbers; reference/test.tok.de is their tokenised reference.
"""

import sys
import tarfile
from argparse import Namespace
from collections.abc import Sequence
from functools import partial
from itertools import product
from pathlib import Path, PurePosixPath
from shutil import copyfileobj
from typing import Any

from omegaconf import OmegaConf
from sacrebleu import DATASETS

from corpora.download import download
from fairseq_luna.command_line import CommandError, Parser, command, positive
from fairseq_luna.commands.preparing import pipeline, provenance
from fairseq_luna.commands.preparing.cleaning import LengthLimits
from fairseq_luna.commands.preparing.corpus import check_texts, gather
from fairseq_luna.commands.preparing.parallel import available_cores, count_words, transform
from fairseq_luna.files import make_unless_present, remove
from shared.recipes import recipe

LANGUAGES = ("en", "de")
SENTENCEPIECE, SUBWORD_NMT = "sentencepiece", "subword-nmt"
CORPORA = OmegaConf.to_container(OmegaConf.load(Path(__file__).parent / "corpora" / "published.yaml"))


@command
def main(arguments: Sequence[str] | None = None) -> None:
    parser = Parser(__doc__)
    add = parser.add_argument
    add("corpus", choices=CORPORA, metavar="CORPUS", help=" or ".join(CORPORA))
    add("--out", type=Path, help="output folder (default: data/CORPUS)")
    add("--downloads", type=Path, help="folder of the published files (default: OUT/downloads)")
    add("--bpe", choices=(SENTENCEPIECE, SUBWORD_NMT), default=SENTENCEPIECE, help="(default: %(default)s)")
    add("--size", metavar="N", type=positive, help="pieces or merges (default: 32,000; multi30k: 8,000 or 10,000)")
    add("--workers", type=positive, default=available_cores(), help="processes (default: %(default)s)")
    args = parser.parse_args(arguments)
    args.out = args.out or Path("data") / args.corpus
    args.size = args.size or CORPORA[args.corpus]["sizes"][args.bpe]
    chosen = {"corpus": args.corpus, "--bpe": args.bpe, "size": args.size}
    provenance.check_provenance(args.out, chosen)
    provenance.record_provenance(args.out, chosen)
    if (args.out / "bin").exists():
        print(f"data: reusing {args.out / 'bin'}")
    else:
        prepare(args, CORPORA[args.corpus])
    if found := pipeline.data_summary(args.out, LANGUAGES[0]):
        print(f"{found[1]}\n{args.out / 'work'} can be deleted")
    print(recipe(args.corpus, args.out / "bin"))


def prepare(args: Namespace, corpus: dict[str, Any]) -> None:
    """Make the data, step by step; what a stopped run has made is reused."""
    work: Path = args.out / "work"
    raw, tokens, codes, rules = work / "raw", work / "tokens", args.out / "codes", LengthLimits(**corpus["rules"])
    plain_text = partial(gather_corpus, corpus, args.downloads or args.out / "downloads")
    if args.bpe == SENTENCEPIECE:
        common = {"rules": rules, "workers": args.workers, "languages": LANGUAGES}
        pipeline.prepare(args.out, plain_text, vocabulary=args.size, coverage=corpus["coverage"], **common)
        return
    try:
        from corpora.tokens import learn_merges, merge, tokenise
    except ModuleNotFoundError as error:
        raise CommandError(f"{error}: pip install -c constraints.txt --no-build-isolation -e '.[data]'") from error

    def tokenised(target: Path) -> None:
        target.mkdir()
        for language, split in product(LANGUAGES, pipeline.SPLITS):
            cut, name = partial(tokenise, language, corpus["tokens"]), f"{split}.{language}"
            transform(cut, raw / name, target / name, what=f"tokenising {name}", workers=args.workers)

    make_unless_present("plain text", raw, plain_text)
    make_unless_present("tokens", tokens, tokenised)
    training = [tokens / f"train.{language}" for language in LANGUAGES]
    make_unless_present("merges", codes, partial(learn_merges, training, args.size))
    cut = partial(merge, codes, None)
    pipeline.cut_and_clean(args.out, tokens, dict.fromkeys(LANGUAGES, cut), rules, args.workers, LANGUAGES)
    clean, known = work / "clean", work / "known"
    make_unless_present("pieces of the training text", known, lambda target: write_words(clean, target, args.workers))
    cut = partial(merge, codes, known)
    pipeline.cut_held_out_and_binarize(args.out, tokens, dict.fromkeys(LANGUAGES, cut), args.workers, LANGUAGES)


def write_words(training: Path, target: Path, workers: int) -> None:
    """The pieces of the training text, a line each: valid and test are cut into no others."""
    words = set().union(*(count_words(training / f"train.{language}", workers=workers) for language in LANGUAGES))
    target.write_text("".join(f"{word}\n" for word in sorted(words)), encoding="utf-8")


def gather_corpus(corpus: dict[str, Any], downloads: Path, target: Path) -> None:
    """Write ``{train,valid,test}.{en,de}`` to ``target``."""
    extracted = target.with_name("extracted")
    extracted.mkdir(parents=True, exist_ok=True)
    texts = {
        split: [
            of_sacrebleu(**text) if "sacrebleu" in text else published(text, downloads, extracted) for text in found
        ]
        for split, found in corpus["splits"].items()
    }
    gather(texts, target, train=check_texts(texts, hold_out=0), hold_out=0, languages=LANGUAGES)
    remove(extracted)


def published(text: dict[str, str], downloads: Path, extracted: Path) -> tuple[Path, Path]:
    """Both sides, from the folder or downloaded; of a tar only the text is extracted, and no path in it is used."""
    paths = []
    for language in LANGUAGES:
        checksum = text.get("checksum") or text[language]
        paths.append(download(text["url"].replace("LANG", language), checksum, downloads))
        if "member" in text:
            member = text["member"].replace("LANG", language)
            archive, paths[-1] = paths[-1], extracted / PurePosixPath(member).name
            with tarfile.open(archive) as tar, paths[-1].open("wb") as file:
                copyfileobj(tar.extractfile(member), file)
    return paths[0], paths[1]


def of_sacrebleu(sacrebleu: str) -> tuple[Path, Path]:
    """Both sides of a test set that sacreBLEU knows, whose checksum it verifies."""
    try:
        source, reference, *_ = DATASETS[sacrebleu].get_files("-".join(LANGUAGES))
    except (OSError, EOFError, tarfile.TarError, SystemExit) as error:
        raise CommandError(f"sacreBLEU cannot get its test set {sacrebleu} ({error})", status=1) from error
    return Path(source), Path(reference)


if __name__ == "__main__":
    sys.exit(main())
