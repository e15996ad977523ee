# make demo | dist | test | test-words-off | test-cuda | test-gpus | test-long | test-openpi-client | test-lerobot | fuzz | bench
#      bench-cases | zoo | robots | docs | lint | clean | distclean
#
# A Python that already has a CUDA build of torch is used as it is: nothing is installed, and lint tools
# it lacks are skipped with a line that says so. Otherwise .venv is made once, with the CPU build of torch.
# PYTHON=... chooses the interpreter, PYTEST_ARGS=... is handed to pytest.

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo dist test test-words-off test-cuda test-gpus test-long test-openpi-client test-lerobot fuzz bench bench-cases zoo robots docs lint ruff format types contracts pytest install clean distclean

# A name found on PATH may be a shim that fails, so candidates are tried by running them.
RECENT     := import sys; assert sys.version_info >= (3, 11)
CUDA_TORCH := $(RECENT); import torch; assert torch.version.cuda
first = $(shell for name in $(2); do $$name -c '$(1)' >/dev/null 2>&1 && echo $$name && break; done)

ifeq ($(filter-out help clean distclean,$(or $(MAKECMDGOALS),help)),)
PY :=
else
CANDIDATES := $(or $(PYTHON),python3 python3.12 python3.11)
READY_PY   := $(call first,$(CUDA_TORCH),$(CANDIDATES))
PY         := $(or $(READY_PY),.venv/bin/python)
ifeq ($(READY_PY),)
BASE_PY    := $(call first,$(RECENT),$(or $(PYTHON),python3.12 python3.11 python3))
ifeq ($(BASE_PY),)
$(error no Python >= 3.11 found; name one with: make PYTHON=/path/to/python ...)
endif
INSTALLED  := .venv/.installed
endif
endif

export PYTHONPATH := $(CURDIR)/src$(if $(PYTHONPATH),:$(PYTHONPATH))

help:
	@sed -n '1,6s/^# \{0,1\}//p' Makefile

demo: $(INSTALLED)
	$(PY) examples/pi0_policy.py

# Wheel and sdist, into dist; tests/packaging installs them into an empty environment.
dist: $(INSTALLED)
	$(PY) -c 'import setuptools.build_meta as backend; backend.build_sdist("dist"); backend.build_wheel("dist")'

# The benchmark set, and its page in the docs. BENCH_ARGS="--only pi0,llama --limit 1500" runs a part of it.
bench: $(INSTALLED)
	$(PY) -m benchmarks.set_run $(BENCH_ARGS)

bench-cases: $(INSTALLED)
	$(PY) -m benchmarks.run

# Programs of many libraries, plain and graphed, and their page. ZOO_ENV is the environment with those libraries, which
# is made where there is none; ZOO_PY=python takes a Python as it is instead, and what it lacks is a row that says so.
ZOO_ENV ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/rote/zoo
ZOO_PY  ?= $(ZOO_ENV)/bin/python
ZOO_ARGS ?= --resume
zoo: $(if $(filter $(ZOO_ENV)/bin/python,$(ZOO_PY)),$(ZOO_ENV)/.installed)
	$(ZOO_PY) -m benchmarks.zoo_run $(ZOO_ARGS)

# torch first, as .venv; what comes with kernels for CUDA alone stands beside the rest, or is installed without them.
ZOO_VISION := torchvision==0.28.0 timm==1.0.31 open-clip-torch==3.3.0 segmentation-models-pytorch==0.6.0
ZOO_ALONE  := torchaudio==2.11.0 torchrl==0.14.1
$(ZOO_ENV)/.installed: benchmarks/zoo/requirements.txt
	$(or $(BASE_PY),$(READY_PY)) -m venv $(ZOO_ENV)
	$(ZOO_ENV)/bin/pip install -q torch==2.13.0 numpy
	$(ZOO_ENV)/bin/pip install -q torch==2.13.0 -r $<
	$(ZOO_ENV)/bin/pip install -q --no-deps $(ZOO_ALONE)
	$(ZOO_ENV)/bin/python -c 'import torchaudio' 2>/dev/null || rm -f $(ZOO_ENV)/lib/python*/site-packages/torchaudio/lib/*.so
	$(ZOO_ENV)/bin/pip install -q --no-deps --upgrade --target $(ZOO_ENV)/vision $(ZOO_VISION)
	@touch $@

# Policies of lerobot in simulators, plainly and graphed: CKPT=... is a checkpoint, instead of random weights. ROBOTS_ENV
# is the environment with lerobot and the simulators, which is made where there is none; ROBOTS_PY=python takes a Python as
# it is instead. test-lerobot runs what the tests of `make test` skip without lerobot.
ROBOTS_ENV  ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/rote/robots
ROBOTS_PY   ?= $(ROBOTS_ENV)/bin/python
ROBOTS_ARGS ?= --world pusht --seeds 3
ROBOTS_MADE := $(if $(filter $(ROBOTS_ENV)/bin/python,$(ROBOTS_PY)),$(ROBOTS_ENV)/.installed)
robots: $(ROBOTS_MADE)
	$(ROBOTS_PY) -m benchmarks.robots $(if $(CKPT),--checkpoint $(CKPT)) $(ROBOTS_ARGS)

test-lerobot: export OMP_NUM_THREADS := 1
test-lerobot: $(ROBOTS_MADE)
	$(ROBOTS_PY) -m pytest tests/integrations/lerobot tests/benchmarks/test_robots.py $(PYTEST_ARGS)
	$(ROBOTS_PY) -m pytest tests/docs/test_blocks.py -k lerobot.md $(PYTEST_ARGS)

# lerobot and the environments state versions that do not fit together, so they come without what they ask for. A library
# among the others brings its tests as a package of that name.
ROBOTS_ALONE := lerobot==0.4.4 gym-pusht==0.1.8 gym-aloha==0.1.5
$(ROBOTS_ENV)/.installed: benchmarks/robots/requirements.txt
	$(or $(BASE_PY),$(READY_PY)) -m venv $(ROBOTS_ENV)
	$(ROBOTS_ENV)/bin/pip install -q torch==2.13.0 numpy
	$(ROBOTS_ENV)/bin/pip install -q torch==2.13.0 -r $<
	$(ROBOTS_ENV)/bin/pip install -q --no-deps $(ROBOTS_ALONE) -e plugins/lerobot_policy_rote
	$(ROBOTS_ENV)/bin/pip install -q --no-deps --upgrade --target $(ROBOTS_ENV)/vision torchvision==0.28.0 timm==1.0.31
	rm -rf $(ROBOTS_ENV)/lib/python*/site-packages/tests
	@touch $@

# Checkers and pages are made side by side, before the tests take both cores.
test: $(INSTALLED)
	$(MAKE) -j2 lint docs
	$(MAKE) pytest

# Nothing is fetched, when they are built or read. The variable silences an announcement of the theme.
docs: export NO_MKDOCS_2_WARNING := 1
docs: $(INSTALLED)
	$(call tool,$(PAGES_NEED),$(PY) -m mkdocs build --strict --quiet)
PAGES_NEED := material, mkdocstrings, typer

pytest test-cuda test-gpus test-long: export OMP_NUM_THREADS := 1

# Tests start a hundred processes, which would each compile rote from its text where the caller forbids to keep bytecode.
pytest test-cuda test-gpus test-long: export PYTHONDONTWRITEBYTECODE :=

# Triton's interpreter has to be chosen before anything imports Triton: what it plays has a process of its own.
pytest: $(INSTALLED)
	$(WITHOUT_GPU) $(INTERPRETED:%=--ignore=%) $(PYTEST_ARGS)
	$(WITHOUT_GPU) $(INTERPRETED) $(PYTEST_ARGS) || [ $$? -eq 5 ]
WITHOUT_GPU = $(PY) -m pytest $(SHARED) -m "not cuda and not multi_gpu and not long"
# Each process begins with a half of its own: neighbours share what they import and build.
SHARED      = $(if $(call has,xdist),-n 2 --dist worksteal)
INTERPRETED := tests/quant_kernels tests/user_kernels

# Tests marked as long: a model at its full size, a whole benchmark.
test-long: $(INSTALLED)
	$(PY) -m pytest $(SHARED) -m "long and not cuda and not multi_gpu" $(PYTEST_ARGS)
	$(PY) -m pytest $(SHARED) -m "hypothesis and not cuda and not multi_gpu" --hypothesis-profile=random $(PYTEST_ARGS)

# The suite once more, with guards that ask each tensor instead of reading words of memory.
test-words-off: export ROTE_READ_WORDS := 0
test-words-off: pytest

# Everything that asks for the GPU: the suites that run on both backends, then marked tests elsewhere (5: none).
test-cuda: export ROTE_TEST_CUDA := 1
test-cuda: $(INSTALLED)
	$(PY) -m pytest $(CUDA_SUITES) $(PYTEST_ARGS)
	$(PY) -m pytest tests -m cuda $(CUDA_SUITES:%=--ignore=%) $(PYTEST_ARGS) || [ $$? -eq 5 ]
CUDA_SUITES := $(wildcard tests/conformance tests/cuda)

# Programs of several processes over NCCL, a GPU for each.
test-gpus: $(INSTALLED)
	$(PY) -m pytest tests -m multi_gpu $(PYTEST_ARGS)

# `rote serve` asked by openpi's own client, in an environment of its own: it needs numpy 1, and does not say that it
# needs typing_extensions.
OPENPI_CLIENT := build/openpi-client/bin/python
test-openpi-client: export ROTE_OPENPI_CLIENT := $(CURDIR)/$(OPENPI_CLIENT)
test-openpi-client: $(INSTALLED) $(OPENPI_CLIENT)
	$(PY) -m pytest tests/serving/test_openpi_client.py $(PYTEST_ARGS)

$(OPENPI_CLIENT):
	$(or $(BASE_PY),$(PY)) -m venv build/openpi-client
	$(OPENPI_CLIENT) -m pip install -q openpi-client==0.1.2 typing_extensions

# Random scenes, about Python state too, and small programs; FUZZ_ARGS="--seed 7 --device cuda --jobs 12" chooses others.
fuzz: export OMP_NUM_THREADS := 1
fuzz: $(INSTALLED)
	$(PY) -m tests.fuzz.run --examples 5000 --device cpu --jobs 2 $(FUZZ_ARGS)
	$(PY) -m tests.fuzz.run --state --examples 2000 --device cpu --jobs 2 $(FUZZ_ARGS)
	$(PY) -m tests.fuzz.small --count 5000

lint: ruff format types contracts

# $(call has,module): non-empty when $(PY) can import it. $(call tool,module,command): run it, or, where
# nothing was installed, say that it is missing.
has  = $(shell $(PY) -c 'import $(1)' >/dev/null 2>&1 && echo yes)
tool = $(if $(or $(INSTALLED),$(call has,$(1))),$(2),@echo "skipped: $(PY) has no $(1)")

ruff: $(INSTALLED)
	$(call tool,ruff,$(PY) -m ruff check)

format: $(INSTALLED)
	$(call tool,ruff,$(PY) -m ruff format --check)

types: $(INSTALLED)
	$(call tool,pyright,$(PY) -m pyright --pythonpath "$$(command -v $(PY))")

contracts: $(INSTALLED)
	$(call tool,importlinter,$(PY) -c "from importlinter.cli import lint_imports_command as run; run()")

install: $(INSTALLED)

# torch first, alone: a wrong build fails before anything else is downloaded. torchvision's wheels need a CUDA
# build, and break transformers beside another: only tests/packages.py puts that folder on the path.
VISION := torchvision timm
.venv/.installed: pyproject.toml constraints-cpu.txt
	$(BASE_PY) -m venv .venv
	.venv/bin/pip install -q -c constraints-cpu.txt torch numpy
	@.venv/bin/python -c '$(CHECK_BUILD)'
	.venv/bin/pip install -q -c constraints-cpu.txt -e '.[dev]'
	.venv/bin/pip install -q -c constraints-cpu.txt --no-deps --upgrade --target .venv/vision $(VISION)
	@touch $@

define CHECK_BUILD
import sys, torch; sys.exit(None if torch.version.cuda is None or torch.cuda.is_available() else f"torch {torch.__version__} is a CUDA build and there is no GPU. Remove .venv and let pip see the CPU build")
endef

clean:
	rm -rf build dist .pytest_cache .ruff_cache .import_linter_cache .hypothesis examples/results
	find . -name .venv -prune -o \( -name __pycache__ -o -name '*.egg-info' \) -prune -exec rm -rf {} +

distclean: clean
	rm -rf .venv
