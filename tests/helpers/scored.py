"""Sentences with worse translations of them, as fairseq-generate writes them, and their scores by sacrebleu."""

import json
import random
import subprocess
import sys
from pathlib import Path

from fairseq_luna.commands.scoring.measures import Measure

_WORDS = tuple(
    "der die das Haus rot well-known A-B-C liest schreibt z.B. 3,5 „alte“ Bücher & heute nicht U-Bahn-Hof".split()  # noqa: SIM905
)


def sentences(count: int, seed: int) -> list[str]:
    draw = random.Random(seed)
    made = [" ".join(draw.choice(_WORDS) for _ in range(draw.randint(4, 12))) for _ in range(count)]
    return [f"{text[0].upper()}{text[1:]}." for text in made]


def worsened(lines: list[str], seed: int, share: float = 0.3) -> list[str]:
    """The lines without some of their words."""
    draw = random.Random(seed)
    return [" ".join(word for word in line.split() if draw.random() > share) for line in lines]


REFERENCES = sentences(40, 1)
HYPOTHESES = worsened(REFERENCES, 2)


def write_lines(path: Path, lines: list[str]) -> Path:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def write_generated(path: Path, text: list[str], tokens: list[str] | None = None, numbers: range | None = None) -> Path:
    """Output like fairseq-generate's: longest sentences first, between lines of its log."""
    found = list(zip(numbers or range(len(text)), tokens or text, text, strict=True))
    lines = ["2026-01-01 00:00:00 | INFO | fairseq_cli.generate | H-0 is no hypothesis here", "H-ypotheses follow"]
    for number, written, read in sorted(found, key=lambda each: (-len(each[1]), each[0])):
        lines += [f"S-{number}\tsource", f"T-{number}\t<<unk>> target", f"H-{number}\t-0.25\t{written}"]
        lines += [f"D-{number}\t-0.25\t{read}", f"P-{number}\t-0.1 -0.4"]
    return write_lines(path, [*lines, "Generate test with beam=5: BLEU4 = 1.00, 2.0/3.0/4.0/5.0"])


def sacrebleu(tmp_path: Path, hypotheses: list[str], references: list[str], *flags: str) -> list[tuple[float, str]]:
    """Scores and signatures of the sacrebleu command."""
    files = [write_lines(tmp_path / name, lines) for name, lines in (("hyp", hypotheses), ("ref", references))]
    command = [sys.executable, "-m", "sacrebleu", str(files[1]), "-i", str(files[0]), "-w", "12", *flags]
    output = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    return [(each["score"], each["signature"]) for each in (output if isinstance(output, list) else [output])]


def found(*measures: Measure) -> list[tuple[float, str]]:
    return [(round(measure.score, 12), measure.signature) for measure in measures]
