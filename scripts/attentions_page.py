"""Write the facts of the attentions into the table of docs/attentions.md: python scripts/attentions_page.py.

Paper, file, places, training time and decoder state come from the declarations. Names and advice are the page's own
text, which stays; a new attention needs a row with its name, two pieces of advice and what was measured.
"""

import functools
import importlib
import pkgutil
import re
from collections.abc import Mapping
from pathlib import Path

import fairseq_luna.modules
from fairseq_luna.modules.declaration import Attention, declared_attentions

PAGE = Path(__file__).parent.parent / "docs" / "attentions.md"
HEADER = "| name | paper | file | places | training time | decoder state | choose it when | avoid it when | BLEU |"
PLACE_NAMES = {"encoder": "encoder", "decoder": "decoder", "source": "cross-attention"}


@functools.cache
def files() -> Mapping[str, str]:
    """The file of ``fairseq_luna/modules`` that declares an attention, by the attention's name."""
    found = {}
    for info in pkgutil.iter_modules(fairseq_luna.modules.__path__):
        module = importlib.import_module(f"fairseq_luna.modules.{info.name}")
        found |= {attention.name: f"{info.name}.py" for attention in getattr(module, "ATTENTIONS", ())}
    return found


def year(paper: str) -> str:
    """The year in the address of a paper on arXiv or in the ACL Anthology.

    Raises:
        ValueError: the address has none.
    """
    found = re.search(r"arxiv\.org/abs/(\d\d)|aclanthology\.org/[A-Z](\d\d)-", paper)
    if not found:
        raise ValueError(f"{paper}: give the paper's address at arxiv.org/abs or aclanthology.org")
    return f"20{found[1] or found[2]}"


def facts(attention: Attention) -> list[str]:
    """The cells of the table that the declaration decides."""
    published = attention.paper.startswith("http")
    label = year(attention.paper) if published else attention.paper.partition(".")[0]
    places = ", ".join(PLACE_NAMES[place] for place in attention.places) or "own layers"
    return [
        f"[{label}]({attention.paper})",
        f"`{files()[attention.name]}`",
        places,
        attention.traits.training_time,
        attention.traits.decoder_state or "no decoder",
    ]


def with_facts(row: str, titles: dict[str, Attention]) -> str:
    """One row with the facts of the attentions in its first cell; a row without a declared name stays as it is.

    Raises:
        ValueError: the attentions in the first cell have different facts.
    """
    cells = row.strip("|").split(" | ")
    named = [titles[name] for name in cells[0].strip().split(", ") if name in titles]
    if not named:
        return row
    if any(facts(attention) != facts(named[0]) for attention in named):
        raise ValueError(f"docs/attentions.md: {cells[0].strip()} have different facts; give each a row")
    advice = [cell.strip() for cell in cells[-3:]]
    return f"| {' | '.join([cells[0].strip(), *facts(named[0]), *advice])} |"


def page(text: str) -> str:
    """The page ``text`` with the facts of today."""
    titles = {attention.title: attention for attention in declared_attentions().values()}
    lines = text.splitlines()
    first = next(place for place, line in enumerate(lines) if line.startswith("| name |"))
    lines[first : first + 2] = [HEADER, "|" + " --- |" * 9]
    for place in range(first + 2, len(lines)):
        if not lines[place].startswith("|"):
            break
        lines[place] = with_facts(lines[place], titles)
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
