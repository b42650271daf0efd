"""No module of fairseq reads a name or an argument that the installed numpy lacks."""

import ast
import importlib
import inspect
from pathlib import Path

import fairseq
import fairseq_cli
import numpy
import torch
from fairseq import options, tasks
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.modules import DynamicCRF

from tiny_training import SENTENCES

# fairseq's examples are programs of their own; those of data2vec and MMPT read names that numpy has removed.
LEFT_OUT = {"examples"}


def chain(node):
    """``np.lib.format`` as its names, or an empty list for what is not names alone."""
    if isinstance(node, ast.Name):
        return [node.id]
    before = chain(node.value) if isinstance(node, ast.Attribute) else []
    return [*before, node.attr] if before else []


def find(place, names):
    for name in names:
        place = getattr(place, name)
    return place


def lacking(path, numpys):
    """What a file reads of numpy that the object of that name in ``numpys`` does not have."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    called = {id(node.func): node for node in ast.walk(tree) if isinstance(node, ast.Call)}
    for node in ast.walk(tree):
        alias, *names = chain(node) or [""]
        if not names or alias not in numpys:
            continue
        try:
            found = find(numpys[alias], names)
            if id(node) in called:
                inspect.signature(found).bind_partial(**{key.arg: 0 for key in called[id(node)].keywords if key.arg})
        except (AttributeError, TypeError):
            yield f"{path.name}: {ast.unparse(called.get(id(node), node))}"
        except ValueError:
            pass  # written in C without a signature


def modules():
    for package in (fairseq, fairseq_cli):
        root = Path(package.__file__).parent
        for path in sorted(root.rglob("*.py")):
            parts = path.relative_to(root).with_suffix("").parts
            if LEFT_OUT.isdisjoint(parts):
                yield path, ".".join([package.__name__, *(part for part in parts if part != "__init__")])


def test_no_module_reads_what_numpy_lacks():
    unpatched, patched = [], []
    for path, name in modules():
        found = list(lacking(path, {"np": numpy, "numpy": numpy}))
        if found:
            unpatched += found
            module = importlib.import_module(name)
            patched += lacking(path, {"np": module.np})
    assert len(unpatched) >= 5  # the search finds what is known
    assert patched == []


def test_sentences_are_read_in_buckets(tiny_data):
    flags = [tiny_data, "--task=translation", "--arch=transformer_tiny", "--num-batch-buckets=3"]
    args = options.parse_args_and_arch(options.get_training_parser(), flags)
    task = tasks.setup_task(convert_namespace_to_omegaconf(args).task)
    task.load_dataset("train")
    batches = task.get_batch_iterator(task.dataset("train"), max_tokens=40, required_batch_size_multiple=1)
    read = [batch["net_input"]["src_tokens"].shape for batch in batches.next_epoch_itr()]
    assert sum(sentences for sentences, _ in read) == SENTENCES["train"]
    assert len({length for _, length in read}) == 3
    assert all(sentences * length <= 40 for sentences, length in read)


def test_the_crf_has_a_likelihood():
    crf = DynamicCRF(num_embedding=6, low_rank=2, beam_size=3)
    emissions, targets = torch.randn(2, 4, 6), torch.tensor([[4, 5, 3, 2], [5, 4, 4, 2]])
    assert crf(emissions, targets, torch.ones(2, 4, dtype=torch.bool)).isfinite().all()
