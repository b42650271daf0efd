"""Pages name files that exist, link to headings that exist, and agree with the code."""

import re
import shlex
from pathlib import Path

import pytest

import attentions_page
import differences_page
import fairseq_luna.models  # noqa: F401 (registers the models)
import flags_page
from fairseq_luna.commands.info import published_layers, registered
from fairseq_luna.commands.shell_commands import USER_DIR
from fairseq_luna.commands.training_commands import train_on_text
from fairseq_luna.compat import PATCHES
from fairseq_luna.models.mixed.chosen_attentions import ATTENTIONS

ROOT = Path(__file__).parent.parent
GUIDE = sorted((ROOT / "docs").glob("*.md"))
STUDIES = sorted((ROOT / "research").glob("*.md"))
RECIPES = sorted((ROOT / "examples").glob("*/README.md"))
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *GUIDE, *STUDIES, *RECIPES]
# A path from the root of the checkout, up to the first placeholder.
NAMED = re.compile(r"(?<![\w/.])(?:fairseq_luna|scripts|tests|examples|docs|research)/[\w./-]*(?![\w./-]*[<*{])")
# Files with the address of the repository, and its account: a placeholder that README explains.
WITH_ADDRESS = ("README.md", "setup.py", "CITATION.cff", ".github/ISSUE_TEMPLATE/config.yml")
ACCOUNT = "OWNER"
LINK = re.compile(r"\]\((?!https?://)([^)#]*)(?:#([^)]+))?\)")


def links(page: Path) -> set[Path]:
    """The files that a page links to or shows."""
    found = LINK.findall(page.read_text(encoding="utf-8"))
    return {(page.parent / target).resolve() for target, _ in found if target}


def headings(page: Path) -> set[str]:
    """The anchors that GitHub gives to a page's headings."""
    titles = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), flags=re.M)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("index", [ROOT / "docs" / "index.md", ROOT / "research" / "README.md"], ids=str)
def test_the_index_of_a_folder_links_to_all_its_pages(index):
    assert [page.name for page in index.parent.glob("*.md") if page not in links(index) | {index}] == []


def test_every_study_has_its_date():
    studies = [page for page in STUDIES if page.name != "README.md"]
    assert len(studies) > 5
    assert [page.name for page in studies if not re.match(r"20\d\d-[01]\d-[0-3]\d-", page.name)] == []


def test_every_picture_is_shown():
    shown = set().union(*map(links, PAGES))
    pictures = [path for folder in ("docs", "research") for path in (ROOT / folder).rglob("*.png")]
    assert [path.name for path in pictures if path.resolve() not in shown] == []


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


def test_the_page_of_differences_is_made_from_the_data_beside_each_attention():
    assert (ROOT / "docs" / "differences.md").read_text(encoding="utf-8") == differences_page.page()


def test_every_attention_says_what_differs_from_the_published_one():
    described = published_layers()
    assert [name for name in ATTENTIONS if name not in described] == []
    texts = [published.layer for published in described.values()]
    texts += [text for published in described.values() for row in published.differences for text in row]
    assert all(texts) and not any("|" in text or "\n" in text for text in texts)


def test_the_page_of_training_has_the_command_that_prepare_prints():
    page = (ROOT / "docs" / "train.md").read_text(encoding="utf-8")
    [pasted] = re.findall(r"```\n(fairseq-train .*?)```", page, flags=re.S)
    printed = train_on_text(Path("data"), ("en", "de"), 4_500)
    pasted = pasted.replace("\\\n", "").replace("$(fairseq-luna info --path)", str(USER_DIR))
    assert shlex.split(pasted) == [str(word) for word in printed]


def test_the_page_of_attentions_has_every_attention():
    page = (ROOT / "docs" / "attentions.md").read_text(encoding="utf-8")
    table = page.partition("\n\n| name |")[2].partition("\n\n")[0]
    listed = {name for row in re.findall(r"^\| (.*?) \|", table, flags=re.M) for name in row.split(", ")}
    assert [name for name in ATTENTIONS if name not in listed] == []


def test_the_facts_on_the_page_of_attentions_are_the_declared_ones():
    page = (ROOT / "docs" / "attentions.md").read_text(encoding="utf-8")
    assert page == attentions_page.page(page)
    assert attentions_page.page(page.replace("| nD² |", "| n |")) == page


def test_the_list_of_patches_has_every_patch():
    page = (ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^\| `([\w-]+)` \|", page, flags=re.M)) == set(PATCHES)


def test_the_page_of_architectures_has_every_architecture():
    page = (ROOT / "docs" / "models.md").read_text(encoding="utf-8")
    names = registered()["architectures"]
    assert "luna_base" in names
    assert [name for name in names if f"`{name}`" not in page] == []


def test_readme_names_every_attention():
    section = (ROOT / "README.md").read_text(encoding="utf-8").partition("\n## Attentions\n")[2].partition("\n## ")[0]
    assert [name for name in ATTENTIONS if f"[{name}](" not in section] == []


def test_every_address_of_the_repository_has_the_same_account():
    accounts = {}
    for name in WITH_ADDRESS:
        found = re.findall(r"github\.com/([\w-]+)/fairseq_luna", (ROOT / name).read_text(encoding="utf-8"))
        accounts[name] = set(found)
    assert accounts == {name: {ACCOUNT} for name in WITH_ADDRESS}
    with_address = [page for page in PAGES if f"github.com/{ACCOUNT}/" in page.read_text(encoding="utf-8")]
    assert with_address == [ROOT / "README.md"]
    assert f"`{ACCOUNT}` stands for" in with_address[0].read_text(encoding="utf-8")
