"""The words for a checkpoint's settings give these settings back through fairseq's own flags."""

from argparse import ArgumentParser, Namespace
from dataclasses import is_dataclass

import pytest
from fairseq.criterions import CRITERION_REGISTRY
from fairseq.dataclass import configs
from fairseq.dataclass.utils import gen_parser_from_dataclass
from fairseq.tasks import TASK_REGISTRY

from fairseq_luna.commands.training_commands import GROUPS, criterion_flags, group_flags, task_flags

PARTS = {
    **{f"task-{name}": (task_flags, name, kind) for name, kind in TASK_REGISTRY.items()},
    **{f"criterion-{name}": (criterion_flags, name, kind) for name, kind in CRITERION_REGISTRY.items()},
}


def parser_of(kind):
    parser = ArgumentParser(allow_abbrev=False, add_help=False)
    kind.add_args(parser)
    for action in parser._actions:
        action.required = False
    return parser


def another(action):
    """A value that the flag can give and that is not its default, as text; None: the flag is a switch or odd."""
    if action.choices:
        return next((str(choice) for choice in action.choices if choice != action.default), None)
    for text in ("3", "0.25", "ab", "a-b,c-d", "{'a': 1}", "[2, 3]"):
        try:
            value = action.type(text) if action.type else text
        except Exception:  # a type of fairseq's, which takes another kind of text
            continue
        if value is not None and not is_dataclass(value) and str(value) != str(action.default):
            return text
    return None


@pytest.mark.parametrize(("words_of", "name", "kind"), PARTS.values(), ids=PARTS)
def test_every_flag_of_a_task_or_a_criterion_comes_back(words_of, name, kind):
    parser = parser_of(kind)
    for action in parser._actions:
        if not action.option_strings:
            continue
        text = "" if action.nargs == 0 else another(action)
        if text is None:
            continue
        given = [max(action.option_strings, key=len) + ("" if action.nargs == 0 else f"={text}")]
        try:
            chosen = getattr(parser.parse_args(given), action.dest)
        except SystemExit:  # another default is none that its own flag takes
            return
        words = words_of({"_name": name, action.dest: chosen})
        assert getattr(parser.parse_args(words), action.dest) == chosen, (given, words)
    assert words_of({**vars(parser.parse_args([])), "_name": name}) == []


def test_nested_settings_namespaces_and_lists_that_a_task_made_of_text():
    langs = Namespace(_name="translation_multi_simple_epoch", lang_pairs=["a-b", "b-a"], langs=["a", "b"], lr=[0.1])
    assert task_flags(langs) == ["--lang-pairs=a-b,b-a", "--langs=a,b"]
    langs = Namespace(_name="translation_multi_simple_epoch", sampling_weights=[0.5, 2.0], encoder_langtok="tgt")
    words = task_flags(langs)
    found = parser_of(TASK_REGISTRY["translation_multi_simple_epoch"]).parse_args(words)
    assert (found.sampling_weights, found.encoder_langtok) == ((0.5, 2.0), "tgt")
    assert task_flags({"_name": "of-another-plugin", "x": 1}) == task_flags(None) == []


def test_settings_of_the_data_come_back_and_others_are_left_out():
    cfg = {
        "dataset": {"dataset_impl": "raw", "max_tokens": 500, "max_tokens_valid": 500, "num_workers": 7},
        "distributed_training": {"ddp_backend": "legacy_ddp", "distributed_world_size": 8},
        "optimization": {"sentence_avg": True, "lr": [0.3]},
    }
    words = group_flags(cfg)
    assert words == ["--dataset-impl=raw", "--max-tokens=500", "--sentence-avg", "--ddp-backend=legacy_ddp"]


@pytest.mark.parametrize("group", GROUPS)
def test_every_name_of_a_group_is_a_flag(group):
    kind, names = GROUPS[group]
    kind = getattr(configs, kind)
    parser = ArgumentParser(add_help=False)
    gen_parser_from_dataclass(parser, kind())
    assert {*names} <= {action.dest for action in parser._actions}
