"""The functions of an op: no form depends on its reference, and all have its signature."""

import ast
import importlib
import inspect
import pkgutil
from pathlib import Path

import pytest

import fairseq_luna
from every_op import OPS
from fairseq_luna import ops

PACKAGE = Path(fairseq_luna.__file__).parent
MODULES = [name for _, name, _ in pkgutil.iter_modules(ops.__path__)]
SUFFIX = "_reference"
# Not attentions; they have tests of their own.
OTHERS = {"feature_maps", "short_convolution"}
COST_ONLY = {"block_length"}  # parameters that a fast form may add, because they do not affect the result


def pairs(op):
    """Pairs of a reference and the public function that it specifies."""
    functions = vars(importlib.import_module(f"fairseq_luna.ops.{op}"))
    own = f"fairseq_luna.ops.{op}"
    return [
        (function, functions[name.removesuffix(SUFFIX)])
        for name, function in functions.items()
        if name.endswith(SUFFIX) and function.__module__.startswith(own) and name.removesuffix(SUFFIX) in functions
    ]


SPECIFIED = [op for op in MODULES if pairs(op)]
REFERENCES = {reference.__name__ for op in SPECIFIED for reference, _ in pairs(op)}


@pytest.mark.parametrize("op", SPECIFIED)
def test_fast_forms_have_the_signature_of_the_reference(op):
    for reference, fast in pairs(op):
        expected, actual = inspect.signature(reference), inspect.signature(fast)
        same = [parameter for name, parameter in actual.parameters.items() if name not in COST_ONLY]
        assert same == list(expected.parameters.values())
        assert actual.return_annotation == expected.return_annotation


def test_every_attention_has_the_contract():
    specified = {(op, fast.__name__) for op in SPECIFIED if op not in OTHERS for _, fast in pairs(op)}
    covered = {(op.folder or op.name, op.name) for op in OPS.values()}
    assert len(SPECIFIED) >= 20 and covered <= specified
    assert specified - covered == {("linformer_attention", "linformer_slots")}


def names_used(node):
    """The names that a part of a file reads or imports, outside of references."""
    if isinstance(node, ast.FunctionDef) and node.name.endswith(SUFFIX):
        return
    if isinstance(node, ast.Name):
        yield node.id
    elif isinstance(node, ast.Attribute):
        yield node.attr
    elif isinstance(node, ast.ImportFrom):
        yield from (alias.name for alias in node.names)
    for child in ast.iter_child_nodes(node):
        yield from names_used(child)


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_only_references_use_references(path):
    """The references of other ops are imported only by files with references."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    has_references = any(isinstance(node, ast.FunctionDef) and node.name.endswith(SUFFIX) for node in tree.body)
    exports = path.name == "__init__.py" and "ops" in path.parts
    nodes = [node for node in tree.body if not (isinstance(node, ast.ImportFrom) and (has_references or exports))]
    assert not [name for node in nodes for name in names_used(node) if name in REFERENCES]
