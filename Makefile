# All targets but check-cuda run in VENV, which is created when it is needed. PYTHON chooses the interpreter.
# From a checkout that cannot be written to: make test VENV="$HOME/luna", make demo VENV="$HOME/luna"
# DEMO_FLAGS="--folder $HOME/demo".
PYTHON ?= python3
VENV ?= .venv
ARCH ?= luna_tiny
DEMO_FLAGS ?=
MATRIX_FLAGS ?=
CUDA_FLAGS ?= -k cuda

CUDA := $(VENV)-cuda
# Modules and not the scripts in bin, whose first line has the folder's whole path.
RUN := $(VENV)/bin/python
PIP := $(RUN) -m pip --disable-pip-version-check

.PHONY: demo test quick test-matrix check-cuda mutants lint docs bench audit clean

demo: $(VENV)/installed
	$(RUN) scripts/demo.py --arch $(ARCH) $(DEMO_FLAGS)

# Without what torch.compile takes hours for: pytest -m inductor, in make test-matrix too. The environment is for
# glibc: it keeps freed memory in the process, in place of giving it back to the system and asking for it again.
test: export MALLOC_MMAP_MAX_ = 0
test: export MALLOC_TRIM_THRESHOLD_ = 1000000000000
test: export MALLOC_TOP_PAD_ = 268435456
test: $(VENV)/installed
	$(RUN) -m pytest -q -n 2 --dist loadfile -m "not inductor"

# The tests of imports, ops, modules and optimizers: under 3 minutes of one core.
quick: $(VENV)/installed
	$(RUN) -m pytest -q -m "not slow" tests/test_imports.py tests/test_pure_imports.py tests/ops tests/modules tests/optim

# The tests with each Python and torch of noxfile.py, which downloads several gigabytes. MATRIX_FLAGS='-s suite(python-3.12)'
# chooses one of them.
test-matrix: $(VENV)/installed
	$(PIP) install --quiet -c constraints.txt nox
	$(RUN) -m nox $(MATRIX_FLAGS)

# Every model and Apollo on a CUDA device that computes nothing; docs/reliability.md explains it.
# CUDA_FLAGS="-k 'cuda and luna-tied'" chooses one of them. Downloads torch's CUDA build, some gigabytes, and needs a C
# compiler, but no GPU.
check-cuda: $(CUDA)/libcuda.so.1
	OMP_NUM_THREADS=1 LD_PRELOAD=$< $(CUDA)/bin/python -m pytest -q tests/test_devices.py $(CUDA_FLAGS)

# torch brings CUDA's headers, triton the part of them that is missing there.
$(CUDA)/libcuda.so.1: tests/harness/fake_cuda.c $(CUDA)/installed
	packages=$$(echo $(CUDA)/lib/python3*/site-packages) && \
	$(CC) -shared -fPIC -Wl,-soname,$(@F) -I"$$(echo $$packages/nvidia/cu*/include)" \
		-I$$packages/triton/backends/nvidia/include -o $@ $<

# Mutation tests of ops/ and optim/: an hour or two.
mutants: $(VENV)/installed
	$(PIP) install --quiet -c constraints.txt mutmut
	OMP_NUM_THREADS=1 $(RUN) -m mutmut run
	$(RUN) -m mutmut results

lint: export RUFF_CACHE_DIR = $(VENV)/ruff-cache
lint: export MYPY_CACHE_DIR = $(VENV)/mypy-cache
lint: $(VENV)/installed
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .
	$(RUN) -m mypy

# The pages as a site, outputs/docs/docs/index.html. A warning is an error.
docs: $(VENV)/installed
	$(PIP) install --quiet -c constraints.txt --no-build-isolation -e '.[docs]'
	$(RUN) -m sphinx -q -W --keep-going -c docs . outputs/docs

bench: BENCH = $(RUN) scripts/benchmark.py
bench: TRAIN_25 = $(BENCH) train --rounds 2 --no-peak --shapes 25x40 --systems transformer luna luna-softmax-source fastformer block
bench: GENERATE_25 = $(BENCH) generate --rounds 2 --no-peak --lengths 25 --source-length 25 --systems transformer luna
bench: $(VENV)/installed
	mkdir -p outputs/benchmark
	$(BENCH) op --no-peak --lengths 128 512 2048 --json outputs/benchmark/op.json
	$(BENCH) train --rounds 2 --no-peak --shapes 128x8,512x2,1024x1 --systems transformer luna fastformer block \
		--json outputs/benchmark/train.json
	$(BENCH) train --memory --size tiny --vocabulary 8000 --systems luna fastformer --reference luna \
		--shapes 1024x1,4096x1,16384x1 --source-length 64 --json outputs/benchmark/memory.json
	$(BENCH) generate --rounds 1 --no-peak --lengths 256 --json outputs/benchmark/generate.json
	$(TRAIN_25) --size base --json outputs/benchmark/train_base.json
	$(TRAIN_25) --size tiny --json outputs/benchmark/train_tiny.json
	$(GENERATE_25) fastformer block --sentences 4 --json outputs/benchmark/generate_4.json
	$(GENERATE_25) fastformer block --sentences 32 --json outputs/benchmark/generate_32.json
	$(GENERATE_25) luna-softmax-source fastformer block --size base --sentences 8 --json outputs/benchmark/generate_base.json
	$(BENCH) optimizer --rounds 5 --no-peak --json outputs/benchmark/optimizer.json
	$(BENCH) launches --json outputs/benchmark/launches.json
	$(BENCH) update --json outputs/benchmark/update.json

# Known vulnerabilities of the tested versions; docs/reliability.md explains them. --strict: a failed look-up is a failure.
audit: $(VENV)/installed
	$(PIP) install --quiet -c constraints.txt pip-audit
	$(RUN) -m pip_audit --requirement constraints.txt --no-deps --disable-pip --strict --desc off

# On most Pythons fairseq-fixed is built from source. Without --no-build-isolation its build would download a second torch.
# For Python 3.10, fairseq needs omegaconf 2.0.6, whose metadata pip >= 24.1 refuses, and an isolated build: with torch it
# would build extensions whose sources its archive lacks.
# With "===" no local build of torch, such as one for CPUs, is taken in place of PyPI's, which is CUDA's.
TORCH = torch
$(CUDA)/installed: TORCH = torch===$(shell sed -n 's/^torch==//p' constraints.txt)
$(VENV)/installed $(CUDA)/installed: INSTALL = $(@D)/bin/python -m pip --disable-pip-version-check install
$(VENV)/installed $(CUDA)/installed: setup.py pyproject.toml constraints.txt
	@echo "Installing into $(@D), 2 GB, or 5 with a torch for CUDA: on most Pythons fairseq is built, which takes some minutes."
	$(PYTHON) -m venv $(@D)
	$(INSTALL) 'pip<24.1; python_version < "3.11"'
	$(INSTALL) -c constraints.txt setuptools wheel cython numpy '$(TORCH)'
	$(INSTALL) -c constraints.txt 'fairseq==0.12.2; python_version < "3.11"'
	$(INSTALL) -c constraints.txt --no-build-isolation -e '.[test,plot,data,deploy,gpu]'
	touch $@

clean:
	rm -rf .venv .venv-cuda .nox demo mutants build dist *.egg-info
