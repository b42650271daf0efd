"""make test-matrix: the tests on every supported Python and fairseq, with the oldest and the newest torch.

Each environment also writes checkpoints (tests/reliability/test_exchange.py). At the end each reads all others.
"""

import os
from pathlib import Path

import nox

nox.options.default_venv_backend = "venv"
nox.options.reuse_existing_virtualenvs = True
nox.options.sessions = ["suite", "exchange"]

EXCHANGE = ("-m", "pytest", "-q", "tests/reliability/test_exchange.py")
OUTPUTS = Path("outputs/matrix").absolute()
PINNED = "as in constraints.txt"
ENVIRONMENTS = {
    "python-3.10": ("3.10", PINNED),  # with fairseq 0.12.2; the others have fairseq-fixed
    "python-3.11": ("3.11", PINNED),
    "python-3.12": ("3.12", PINNED),
    "oldest-torch": ("3.11", "torch==2.6.0"),
    "newest-torch": ("3.12", "torch"),
}


def constraints(torch: str) -> Path:
    """Write a copy of constraints.txt, without the pins of torch and of its triton if another torch is asked for."""
    lines = Path("constraints.txt").read_text(encoding="utf-8").splitlines()
    kept = [line for line in lines if torch == PINNED or not line.startswith(("torch", "triton"))]
    OUTPUTS.mkdir(parents=True, exist_ok=True)
    made = OUTPUTS / f"constraints-{'pinned' if torch == PINNED else torch}.txt"
    made.write_text("\n".join(kept) + "\n", encoding="utf-8")
    return made


def install(session: nox.Session, torch: str) -> None:
    """Install like the Makefile: the build requirements of fairseq first."""
    limits = ("-c", str(constraints(torch)))
    wanted = "torch" if torch == PINNED else torch
    if session.python == "3.10":
        session.install("pip<24.1")
    session.install(*limits, "setuptools", "wheel", "cython", "numpy", wanted)
    session.install(*limits, "fairseq==0.12.2; python_version < '3.11'")
    session.install(*limits, "--no-build-isolation", "-e", ".[test,plot,data,deploy,gpu]", wanted)


@nox.session
@nox.parametrize("python,torch", list(ENVIRONMENTS.values()), ids=list(ENVIRONMENTS))
def suite(session: nox.Session, torch: str) -> None:
    """Run the tests and write checkpoints for ``exchange``."""
    install(session, torch)
    name = next(name for name, pair in ENVIRONMENTS.items() if pair == (session.python, torch))
    folder = OUTPUTS / name
    folder.mkdir(parents=True, exist_ok=True)
    session.run("python", "-m", "fairseq_luna", "info")
    session.run("python", *EXCHANGE, env={"WRITE_CHECKPOINTS": str(folder)})
    (folder / "python").write_text(f"{session.bin}/python", encoding="utf-8")
    session.run("python", "-m", "pytest", "-q", *session.posargs, env={"OMP_NUM_THREADS": "1"})


@nox.session(venv_backend="none")
def exchange(session: nox.Session) -> None:
    """Read, in every environment of ``suite``, the checkpoints of all others."""
    written = sorted(path.parent for path in OUTPUTS.glob("*/python"))
    for folder in written:
        others = [str(other) for other in written if other != folder]
        python = (folder / "python").read_text(encoding="utf-8")
        if others:
            session.run(python, *EXCHANGE, env={"READ_CHECKPOINTS": os.pathsep.join(others)}, external=True)
