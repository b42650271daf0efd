"""The files of an op: no form depends on the specification, and all have its signature."""

import ast
import importlib
import inspect
import re
from pathlib import Path

import pytest

import fairseq_luna
from every_op import OPS

PACKAGE = Path(fairseq_luna.__file__).parent
SPECIFIED = sorted(path.parent.name for path in PACKAGE.glob("ops/*/naive.py"))
FAST = ("chunked", "fused")
# What is not an attention, and has tests of its own.
OTHERS = {"feature_maps", "short_convolution"}
COST_ONLY = {"block_length"}  # parameters that a fast form may add, because they do not affect the result


def fast_functions(op):
    """Pairs of a function of the specification and its fast form."""
    specification = importlib.import_module(f"fairseq_luna.ops.{op}.naive")
    for name in FAST:
        if (PACKAGE / "ops" / op / f"{name}.py").exists():
            fast = importlib.import_module(f"fairseq_luna.ops.{op}.{name}")
            public = importlib.import_module(f"fairseq_luna.ops.{op}").__all__
            names = {key for key in public if key in vars(fast) and key in vars(specification)}
            yield from (
                (vars(specification)[key], vars(fast)[key]) for key in names if inspect.isfunction(vars(fast)[key])
            )


@pytest.mark.parametrize("op", SPECIFIED)
def test_fast_forms_have_the_signature_of_the_specification(op):
    pairs = list(fast_functions(op))
    assert pairs
    for naive, fast in pairs:
        expected, actual = inspect.signature(naive), inspect.signature(fast)
        same = [parameter for name, parameter in actual.parameters.items() if name not in COST_ONLY]
        assert same == list(expected.parameters.values())
        assert actual.return_annotation == expected.return_annotation


def test_every_attention_has_the_contract():
    specified = {(op, naive.__name__) for op in SPECIFIED if op not in OTHERS for naive, _ in fast_functions(op)}
    covered = {(op.folder or op.name, op.name) for op in OPS.values()}
    assert specified - covered == {("linformer_attention", "linformer_slots")}


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_only_specifications_import_specifications(path):
    nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    imports = [ast.unparse(node) for node in nodes if isinstance(node, ast.Import | ast.ImportFrom)]
    assert path.name == "naive.py" or not re.search(r"\bnaive\b", "\n".join(imports))
