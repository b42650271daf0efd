"""Importing the package, its operations, its modules or its optimizer changes nothing in a process."""

import json
import pkgutil
import re
import subprocess
import sys
from pathlib import Path

import pytest

from fairseq_luna import ops

# Prints what imports change in a process: loaded packages, hooks, fairseq's functions and registries, log records.
PROBE = """
import importlib, json, logging, sys

class Records(logging.Handler):
    def emit(self, record):
        messages.append(f"{record.name}: {record.getMessage()}")

messages = []
for name in sys.argv[1].split():
    importlib.import_module(name)
logging.getLogger().addHandler(Records())
logging.getLogger().setLevel(logging.DEBUG)

def state():
    registries = {
        name: sorted(getattr(sys.modules.get(module), registry, ()))
        for name, module, registry in (
            ("models", "fairseq.models", "ARCH_MODEL_REGISTRY"),
            ("optimizers", "fairseq.optim", "OPTIMIZER_REGISTRY"),
            ("schedules", "fairseq.optim.lr_scheduler", "LR_SCHEDULER_REGISTRY"),
        )
    }
    modules = {name: module for name, module in sys.modules.items() if name.split(".")[0] in ("fairseq", "fairseq_cli")}
    owners = modules | {
        f"{name}.{kind.__name__}": kind
        for name, module in modules.items()
        for kind in vars(module).values()
        if isinstance(kind, type) and kind.__module__.startswith("fairseq.")
    }
    functions = {f"{owner}.{name}": id(value) for owner in owners for name, value in vars(owners[owner]).items()}
    return {"hook": id(sys.excepthook), "functions": functions, "registries": registries, "path": len(sys.meta_path)}

before = state()
packages = {name.split(".")[0] for name in sys.modules}
for name in sys.argv[2:]:
    importlib.import_module(name)
added = {name.split(".")[0] for name in sys.modules} - packages - set(sys.stdlib_module_names)
print(json.dumps({"changed": state() != before, "added": sorted(added), "logged": messages}))
"""


def changes(*modules, after):
    """The changes by importing ``modules`` in a process that has imported the modules named in ``after``."""
    command = [sys.executable, "-c", PROBE, after, *modules]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout.splitlines()[-1])


MODELS_PAGE = Path(__file__).parent.parent / "docs" / "models.md"
NOTHING = {"changed": False, "added": ["fairseq_luna"], "logged": []}
OPS = [f"fairseq_luna.ops.{name}" for _, name, _ in pkgutil.iter_modules(ops.__path__)]
FAIRSEQ = "fairseq fairseq.trainer fairseq_cli.train"


def test_the_package_needs_only_the_standard_library():
    assert changes("fairseq_luna", "fairseq_luna.usage_error", "fairseq_luna.environment", after="") == NOTHING


def test_operations_modules_and_apollo_need_only_torch():
    plain = ("fairseq_luna.modules", *OPS, "fairseq_luna.optim", "fairseq_luna.optim.apollo")
    assert changes(*plain, after="torch") == NOTHING
    assert changes(*plain, after=FAIRSEQ) == NOTHING


# Run without anything but torch: importing the others fails.
WITHOUT_FAIRSEQ = """
import sys
sys.modules.update(dict.fromkeys(["fairseq", "fairseq_cli", "omegaconf", "hydra", "numpy"]))
import torch
from fairseq_luna import modules
from fairseq_luna.usage_error import UsageError

x, size = torch.randn(9, 2, 8), {"embed_dim": 8, "num_heads": 2}
modules.FastformerAttention(**size)(x).sum().backward()
try:
    modules.SoftmaxAttention(**size, q_noise=0.1)
except UsageError as error:
    assert "q_noise 0.1" in str(error)
else:
    raise AssertionError("no refusal")
torch.manual_seed(0)
exec(compile(sys.argv[1], "models.md", "exec"))
assert loss < 0.3  # the topic's own variance is 1
"""


@pytest.mark.slow
def test_modules_and_the_code_of_the_page_of_models_run_without_fairseq():
    [code] = re.findall(r"```python\n(.*?)```", MODELS_PAGE.read_text(encoding="utf-8"), flags=re.S)
    ended = subprocess.run([sys.executable, "-c", WITHOUT_FAIRSEQ, code], capture_output=True, text=True, timeout=300)
    assert ended.returncode == 0, ended.stderr


def test_activation_changes_fairseq_and_logs_nothing():
    activation = changes("fairseq_luna.models", after=FAIRSEQ)
    assert activation["changed"] and activation["logged"] == []
