"""Imports between the parts of the package go in one direction only."""

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "fairseq_luna"
FILES = sorted(PACKAGE.rglob("*.py"))

# The parts of the package that the files of each part may import, besides their own.
ALLOWED = {"ops": set(), "modules": {"ops"}, "models": {"modules", "ops"}, "optim": set()}
# Files outside the parts that every part except ops may import.
SHARED = {
    *(
        "model_settings",
        "older_names",
        "option_names",
        "published",
        "silenced_logs",
        "monkeypatch",
        "search_options",
        "subwords",
    ),
    *("trained_languages", "translation", "usage_error"),
}
# Files that import nothing of fairseq, and those of them that import no other part of the package.
WITHOUT_FAIRSEQ = ("ops/", "modules/", "optim/apollo.py", "optim/apollo_update.py", "published.py", "usage_error.py")
PLAIN_TORCH = ("ops/", "optim/apollo.py", "optim/apollo_update.py")
# What a function imports when it is asked for it.
OPTIONAL = {"modules/projection.py": "fairseq.modules.quant_noise"}
# Patches fairseq and registers everything.
ACTIVATION = "models/__init__.py"
OUTSIDE = ("examples", "scripts", "tests")


def imported(path, *, nested=True):
    """The absolute names of the modules that a file imports; in functions too if ``nested``."""
    package = ["fairseq_luna", *path.relative_to(PACKAGE).parent.parts]
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree) if nested else tree.body:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, *filter(None, [node.module])])
            yield module
            yield from (f"{module}.{alias.name}" for alias in node.names)


@pytest.mark.parametrize("part", ["ops", "modules"])
def test_errors_below_the_models_name_arguments_and_no_flags(part):
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in (PACKAGE / part).rglob("*.py")]
    raised = [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Raise)]
    assert raised
    words = [node.value for error in raised for node in ast.walk(error) if isinstance(node, ast.Constant)]
    assert [word for word in words if "--" in str(word)] == []


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_go_down_only(path):
    name = path.relative_to(PACKAGE).as_posix()
    part = name.split("/")[0]
    for module in imported(path):
        top, *rest = module.split(".")
        assert top not in OUTSIDE
        if name.startswith(WITHOUT_FAIRSEQ) and not module.startswith(OPTIONAL.get(name, "fairseq_luna")):
            assert top not in ("fairseq", "fairseq_cli", "omegaconf", "hydra")
        if name.startswith(PLAIN_TORCH):
            assert not module.endswith("usage_error")
        if top == "fairseq_luna" and rest and part in ALLOWED and name != ACTIVATION:
            assert rest[0] in ALLOWED[part] | SHARED | {part}, f"{name} imports {module}"


def test_messages_name_no_files_that_an_installation_lacks():
    """Scripts, examples and pages are in the checkout alone. Docstrings may name them, but for those of commands."""
    named = []
    for path in FILES:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        owners = [node for node in ast.walk(tree) if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)]
        docstrings = [node.body[0].value for node in owners if node.body and isinstance(node.body[0], ast.Expr)]
        shown = path.parent.name == "commands"
        strings = [node for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)]
        for node in strings:
            if (shown or node not in docstrings) and any(f"{folder}/" in node.value for folder in (*OUTSIDE, "docs")):
                named.append(f"{path.name}: {node.value[:60]}")
    assert named == []


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_nothing_private_is_imported_from_torch(path):
    """Not every torch has it: a missing one would stop every import of the package."""
    names = [name.split(".") for name in imported(path, nested=False)]
    assert [name for name in names if name[0] == "torch" and any(part.startswith("_") for part in name)] == []
