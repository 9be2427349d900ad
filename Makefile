# Each target is the only command to type, also on a fresh machine: what it needs is made first.
# The work is done by tools/dev.py. PYTHON=... chooses the Python (3.10 or newer), TORCH=... the
# torch (default: the newest on PyPI; options of pip may follow, as in
# TORCH="torch --index-url https://download.pytorch.org/whl/cpu").

PYTHON ?= python3
export TORCH

.DEFAULT_GOAL := help
targets := demo test test-full test-rdma lint format bench docs wheel compat build clean
.PHONY: help python $(targets)

help:
	@echo "make demo       install what is needed, build, and reduce tensors across 4 processes"
	@echo "make test       C++ tests (plain; ASan+UBSan or TSan, in turns of commits) and Python tests"
	@echo "make test-full  all tests in all ways, however long they take"
	@echo "make test-rdma  RDMA verbs in a virtual machine with soft-RoCE, beside perftest (Debian, x86-64)"
	@echo "make lint       formats, types, floors, stubs, clang-tidy"
	@echo "make format     put C++ and Python into their formats"
	@echo "make bench      time torchcomms beside PyTorch's Gloo and the MPIs"
	@echo "make docs       the documentation, as a site in build/site"
	@echo "make wheel      a wheel in dist/, for the torch in .venv"
	@echo "make compat     build and smoke-test the oldest and newest supported Python and torch"
	@echo "make build      build into .venv"
	@echo "make clean      remove what was built"

$(targets): python
	@"$(PYTHON)" tools/dev.py $@

python:
	@command -v "$(PYTHON)" >/dev/null || \
	  { echo "error: there is no $(PYTHON); install Python 3.10 or newer (Debian, Ubuntu:" \
	         "apt-get install python3), or name one: make PYTHON=/path/to/python" >&2; exit 1; }
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 10))' || \
	  { echo "error: $(PYTHON) is older than Python 3.10;" \
	         "name a newer one: make PYTHON=/path/to/python" >&2; exit 1; }
