# make setup | demo | test | faults | chaos | lint | bench | bench-peers | clean
#
# PIP_ONLY=1  wheels from PyPI alone, MPI included, in an environment of its own
# NO_APT=1    install no Debian packages; say which are missing and go on with what is there
# LAMMPS=1    install LAMMPS as well, for the test of dmr-launch --app (some 70 MB)
# WORKERS=3   processes that share the tests: most of those on a Slurm wait
# ARGS=…      handed on to the demo, pytest or the benchmark

PYTHON ?= /usr/bin/python3
VENV ?= $(if $(PIP_ONLY),.venv-pip,.venv)
BIN := $(VENV)/bin
WORKERS ?= 3

# python, dmr-launch and, with wheels alone, mpirun are those of the environment.
export PATH := $(CURDIR)/$(BIN):$(PATH)

# Open MPI asks root for a second thought; a container's root has none.
export OMPI_ALLOW_RUN_AS_ROOT := 1
export OMPI_ALLOW_RUN_AS_ROOT_CONFIRM := 1

.PHONY: setup demo test faults chaos bench-peers lint bench clean

setup:
	@$(PYTHON) tools/setup.py --venv $(VENV) $(if $(PIP_ONLY),--pip-only) $(if $(NO_APT),--no-apt) $(if $(LAMMPS),--lammps) $(SETUP)

demo: setup
	$(BIN)/python examples/demo.py $(ARGS)

test: SETUP := --browser
test: setup
	$(BIN)/pytest -r fER --numprocesses $(WORKERS) --dist loadgroup --no-loadscope-reorder $(ARGS)

# Thousands of kills, bit flips and full disks; the tests do the same with fewer.
faults: setup
	$(BIN)/python tests/faults/campaign.py --times 10 $(ARGS)

# Runs on a private Slurm to which anything happens: launchers, ranks and nodes killed, jobs cancelled, the scheduler away.
chaos: setup
	$(BIN)/python tests/launcher/chaos.py --minutes 20 $(ARGS)

lint: setup
	$(BIN)/python tools/lint.py

# Checkpoints beside other ways to write them, PyTorch's among them: ARGS="--dir /tmp --mib 1024"
bench-peers: setup
	test -x .venv-peers/bin/python || { $(PYTHON) -m venv .venv-peers && .venv-peers/bin/pip install -q torch numpy; }
	$(BIN)/python benchmarks/checkpoint.py --torch-python .venv-peers/bin/python --dir /tmp $(ARGS)

bench: setup
	$(BIN)/python benchmarks/safepoint.py $(ARGS)

clean:
	rm -rf build dist out .venv .venv-* *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
