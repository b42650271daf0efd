"""The source archive is complete, and the wheel works where only it is installed."""

import ast
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from email import message_from_bytes
from pathlib import Path

import pytest

import fairseq_luna
from commands import APOLLO, FAMILIES, arguments

ROOT = Path(__file__).parents[1]
FOLDERS = ("docs", "examples", "fairseq_luna", "research", "scripts", "tests")
FILES = (
    *("LICENSE", "CITATION.cff", "CITATION.bib", "README.md", "CHANGELOG.md", "CONTRIBUTING.md", "Makefile", ".ci/run"),
    *("setup.py", "pyproject.toml", "constraints.txt", "noxfile.py", "MANIFEST.in"),
)
# The module that a distribution is imported as, where the names differ.
IMPORTED_AS = {"fairseq-fixed": "fairseq", "hydra-core": "hydra"}
# Packages that fairseq asks a user to install for one of its options. The package imports them only within `try`.
OPTIONS_OF_FAIRSEQ = {"fairscale"}

pytestmark = pytest.mark.slow


def run(*command: object, cwd: Path) -> str:
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    ended = subprocess.run([*map(str, command)], cwd=cwd, env=env, capture_output=True, text=True, timeout=300)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The folder with both archives, built from a copy of this tree; the wheel is built from the source archive."""
    tree = tmp_path_factory.mktemp("built") / "tree"
    ignored = shutil.ignore_patterns(".git", *(line.rstrip("/") for line in (ROOT / ".gitignore").read_text().split()))
    shutil.copytree(ROOT, tree, ignore=ignored)
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", tree.parent, cwd=tree)
    return tree.parent


@pytest.fixture(scope="module")
def wheel(built):
    return next(built.glob("*.whl"))


@pytest.fixture(scope="module")
def metadata(wheel):
    with zipfile.ZipFile(wheel) as archive:
        return message_from_bytes(archive.read(next(name for name in archive.namelist() if name.endswith("/METADATA"))))


@pytest.fixture(scope="module")
def python(wheel, tmp_path_factory):
    """A Python with the wheel installed that takes everything else from this one's site-packages."""
    env = tmp_path_factory.mktemp("installed") / "env"
    run(sys.executable, "-m", "venv", "--without-pip", env, cwd=env.parent)
    python = env / "bin" / "python"
    run(sys.executable, "-m", "pip", "--python", python, "install", "--no-deps", "--no-index", wheel, cwd=env.parent)
    site = run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=env.parent).strip()
    # A path file's own folders are searched, but not their path files: the tree under test stays out.
    (Path(site) / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return python


def test_the_source_archive_is_complete(built):
    with tarfile.open(next(built.glob("*.tar.gz"))) as archive:
        held = {name.split("/", 1)[1] for name in archive.getnames() if "/" in name}
    paths = (path for folder in FOLDERS for path in (built / "tree" / folder).rglob("*") if path.is_file())
    wanted = {path.relative_to(built / "tree").as_posix() for path in paths} | set(FILES)
    assert len(wanted) > 200
    assert wanted - held == set()


def test_the_wheel_contains_only_the_package(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    assert {name.split("/")[0].split("-")[0] for name in names} == {"fairseq_luna"}
    assert "fairseq_luna/py.typed" in names
    assert any(name.endswith("/licenses/LICENSE") for name in names)


def test_imported_packages_are_declared(metadata):
    lines = metadata.get_all("Requires-Dist")
    with_extras = [line for line in lines if "extra ==" not in line or re.search('extra == "(deploy|gpu)"', line)]
    required = {re.match(r"[\w-]+", line).group() for line in with_extras}
    declared = {IMPORTED_AS.get(name, name) for name in required} | {"fairseq_luna"} | set(sys.stdlib_module_names)
    declared |= OPTIONS_OF_FAIRSEQ
    imported = set()
    for path in (ROOT / "fairseq_luna").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                imported |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and not node.level:
                imported.add(node.module.split(".")[0])
    assert {"torch", "fairseq"} <= imported
    assert imported - declared == set()


def test_the_readme_works_on_a_package_index(metadata):
    """A page there has neither this repository's other files nor its headings' anchors."""
    assert metadata["Description-Content-Type"] == "text/markdown"
    page = metadata.get_payload()
    assert [target for target in re.findall(r"\]\(([^)\s]+)", page) if not target.startswith("https://")] == []
    assert "<img" not in page and "## Install" in page


def test_the_readme_shows_a_picture_of_the_repository():
    [shown] = re.findall(r'<img src="([^"]+)"', (ROOT / "README.md").read_text(encoding="utf-8"))
    assert (ROOT / shown).is_file()


def test_the_installed_wheel_works(python, tiny_data, tmp_path):
    path, version = run(
        python, "-c", "import fairseq_luna as it; print(*it.__path__, it.__version__)", cwd=tmp_path
    ).split()
    assert path.startswith(str(python.parents[1]))
    assert version == fairseq_luna.__version__
    assert run(python.parent / "fairseq-luna", "info", "--path", cwd=tmp_path).strip() == path
    given = arguments(tiny_data, tmp_path / "run", *FAMILIES["luna"], *APOLLO, "--max-update=1", f"--user-dir={path}")
    run(python, "-m", "fairseq_cli.train", *given, cwd=tmp_path)
    assert (tmp_path / "run" / "checkpoint_last.pt").exists()
