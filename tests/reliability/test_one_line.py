"""Only an error that bad input explains loses its traceback: none of a user's own code, no fault of the host's."""

import importlib.util
import logging
import sys

import pytest
from fairseq import file_io
from omegaconf import OmegaConf

from fairseq_luna.compat.one_line import in_one_line
from fairseq_luna.usage_error import UsageError


@pytest.fixture
def users_code(tmp_path):
    """Define functions in a module of the user's own."""

    def define(code):
        (tmp_path / "my_plugin.py").write_text(code, encoding="utf-8")
        spec = importlib.util.spec_from_file_location("my_plugin", tmp_path / "my_plugin.py")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    return define


def raised(function, *arguments):
    with pytest.raises(BaseException) as caught:
        function(*arguments)
    return caught.value


def test_a_usage_error_says_it_itself():
    assert in_one_line(UsageError("--flag 0: must be 1 or more")) == "--flag 0: must be 1 or more"


def test_a_file_that_fairseq_does_not_find_is_named(tmp_path):
    error = raised(file_io.PathManager.open, str(tmp_path / "no-such"), "rb")
    assert in_one_line(error) == f"{tmp_path / 'no-such'}: No such file or directory"


@pytest.mark.parametrize(
    "body",
    [
        "open('no-such-file')",
        "__import__('pathlib').Path('no-such-file').read_text()",
        "__import__('numpy').load('no-such-file')",
        "__import__('ast').literal_eval('{')",
        "{}['model']",
        "{}['a']",
        "__import__('omegaconf').OmegaConf.structured({'a': 1}).b.c",
        "b'\\xff'.decode('utf-8')",
    ],
)
@pytest.mark.parametrize("name", ["main", "build_x", "load_model_ensemble_and_task", "buffered_read"])
def test_the_same_in_a_users_code_keeps_its_traceback(users_code, name, body):
    module = users_code(
        f"def {name}(filename=None, registry_name=None, choice=None, input=None, cfg=None):\n    {body}\n"
    )
    assert in_one_line(raised(getattr(module, name))) is None


def test_a_key_that_is_in_no_config_is_a_fault_of_the_code():
    from fairseq import utils

    cfg = OmegaConf.create({"a": 1})
    OmegaConf.set_struct(cfg, True)
    assert in_one_line(raised(lambda: utils.eval_str_list(cfg.b))) is None


def test_an_error_without_a_traceback_is_left_alone():
    assert in_one_line(OSError(2, "No such file", "file")) is None
    assert in_one_line(KeyError("model")) is None


def test_the_traceback_is_kept_for_debugging(tmp_path, caplog):
    error = raised(file_io.PathManager.open, str(tmp_path / "no-such"), "rb")
    with caplog.at_level(logging.DEBUG, logger="fairseq_luna"):
        in_one_line(error)
    assert [record.exc_info[1] for record in caplog.records if record.exc_info] == [error]


def test_the_hook_prints_a_users_error_in_full(users_code, capsys):
    error = raised(users_code("def main():\n    open('no-such-file')\n").main)
    sys.excepthook(type(error), error, error.__traceback__)
    printed = capsys.readouterr().err
    assert "Traceback" in printed and "fairseq_luna: error" not in printed
