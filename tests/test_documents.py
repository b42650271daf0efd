"""README, CONTRIBUTING and docs/: short enough, naming files that exist, with code that runs."""

import re
from pathlib import Path

import pytest

import fairseq_luna.models  # noqa: F401 (registers the models)
import flags_page
from fairseq_luna.commands.info import registered
from fairseq_luna.compat import PATCHES
from fairseq_luna.models.mixed.attentions import ATTENTIONS

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
# A path from the root of the checkout, up to the first placeholder.
NAMED = re.compile(r"(?<![\w/.])(?:fairseq_luna|scripts|tests|examples|docs)/[\w./-]*(?![\w./-]*[<*{])")
LINK = re.compile(r"\]\((?!https?://)([^)#]*)(?:#([^)]+))?\)")


def words(*pages: Path) -> int:
    """Without the bars and rules of tables."""
    return sum(len(re.findall(r"\S*\w\S*", page.read_text(encoding="utf-8"))) for page in pages)


def headings(page: Path) -> set[str]:
    """The anchors that GitHub gives to a page's headings."""
    titles = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), flags=re.M)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def test_the_pages_are_short():
    assert len((ROOT / "README.md").read_text(encoding="utf-8").split()) <= 1100  # with the bars
    assert words(*set((ROOT / "docs").glob("*.md")) - {ROOT / "docs" / "flags.md"}) <= 15500


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_file_that_a_page_names_exists(page):
    named = {path.rstrip("./") for path in NAMED.findall(page.read_text(encoding="utf-8"))}
    assert [path for path in sorted(named) if not (ROOT / path).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_leads_to_a_file_and_a_heading(page):
    for target, anchor in LINK.findall(page.read_text(encoding="utf-8")):
        aim = page.parent / target if target else page
        assert aim.exists(), f"{page.name} links to {target}"
        assert not anchor or anchor in headings(aim), f"{page.name} links to {target}#{anchor}"


def test_the_page_of_flags_is_made_from_the_parser():
    assert (ROOT / "docs" / "flags.md").read_text(encoding="utf-8") == flags_page.page()


def test_the_page_of_attentions_has_every_attention():
    page = (ROOT / "docs" / "attentions.md").read_text(encoding="utf-8")
    table = page.partition("\n\n| name |")[2].partition("\n\n")[0]
    assert [name for name in ATTENTIONS if not named(name, re.findall(r"^\| (.*?) \|", table, flags=re.M))] == []
    paragraphs = re.findall(r"^\*\*(.*?)\*\*", page.partition("\n## The names\n")[2], flags=re.M)
    assert [name for name in ATTENTIONS if not named(name, paragraphs)] == ["softmax"]


def named(name, lists):
    """Whether one of the lists has the name, or its start up to a hyphen."""
    entries = {entry.rstrip(".") for listed in lists for entry in listed.split(", ")}
    return name in entries or name.partition("-")[0] + "-" in entries


def test_the_list_of_patches_has_every_patch():
    page = (ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^\| `([\w-]+)` \|", page, flags=re.M)) == {patch.name for patch in PATCHES}


def test_the_readme_has_every_architecture():
    page = (ROOT / "README.md").read_text(encoding="utf-8")
    names = registered()["architectures"]
    assert "luna_base" in names
    shortened = {name: "_" + name.split("_", 1)[-1] for name in names}
    assert [name for name in names if f"`{name}`" not in page and f"`{shortened[name]}`" not in page] == []


def test_the_code_in_the_readme_trains():
    [code] = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), flags=re.S)
    seeded = code.replace("import torch\n", "import torch\ntorch.manual_seed(0)\n", 1)
    known = {}
    exec(compile(seeded, "README.md", "exec"), known)
    assert known["loss"] < 0.3  # the topic's own variance is 1
