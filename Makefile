# Every target sets up what it needs in a virtual environment of its own; PYTHON names the interpreter to start from.
PYTHON ?= python3
VENV ?= .venv
comma := ,
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
# With a CUDA compiler the plugin is built too; it links the cuBLASLt of this package.
CUBLAS := $(if $(shell command -v nvcc 2>/dev/null),nvidia-cublas==13.1.0.3)
EXTRAS := server$(if $(CUBLAS),$(comma)cuda)
NATIVE := pyproject.toml CMakeLists.txt $(wildcard cmake/*) $(shell find cpp cuda bench/openjev_bench bench/CMakeLists.txt -type f)
CPP_FORMATTED = $(shell git ls-files 'cpp/*.h' 'cpp/*.cc' 'cuda/*.h' 'cuda/*.cc' 'cuda/*.cu' 'cuda/*.cuh' 'tests/*.cc' 'bench/*.h' 'bench/*.cc')

.PHONY: build serve test bench demo-eval lint format parity wheel clean

build: $(VENV)/.built

serve: $(VENV)/.built
	$(BIN)/openjev serve

test: $(VENV)/.test
	$(BIN)/python -m pytest

# The whole measurement harness on the demonstration checkpoint: ledger, check of the ledger, tables and figures.
bench: $(VENV)/.bench
	rm -rf build/bench
	$(BIN)/python -m bench.harness.run bench/plans/cpu-demo.json --out build/bench
	$(BIN)/python -m bench.validate build/bench/cpu-demo.json
	$(BIN)/python -m bench.report build/bench/cpu-demo.json --figures build/bench/figures

# The held-out rows of the demonstration model, made anew, scored, and compared with the logits of REFERENCE.
REFERENCE ?= docs/measurements/demo/test_logits.json
demo-eval: $(VENV)/.built
	$(BIN)/python -m train.data.generate build/demo-eval --splits test
	$(BIN)/openjev score-demo build/demo-eval/test.jsonl --out build/demo-eval/report.json --reference $(REFERENCE)

lint: $(VENV)/.test $(VENV)/.lint
	$(BIN)/ruff check --no-cache .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/clang-format --dry-run --Werror $(CPP_FORMATTED)

format: $(VENV)/.lint
	$(BIN)/ruff check --fix . && $(BIN)/ruff format . && $(BIN)/clang-format -i $(CPP_FORMATTED)

# Live comparison with Transformers on torch CPU, in an environment apart: neither is ever a dependency.
parity: .venv-parity/.parity
	.venv-parity/bin/python -m pytest tests/parity

wheel: $(VENV)/.tools
	PATH="$(abspath $(BIN)):$$PATH" $(PIP) wheel --no-deps --no-build-isolation -w dist .

clean:
	rm -rf build dist

$(VENV)/.tools:
	$(PYTHON) -m venv $(VENV)
	$(PIP) install -q $(CUBLAS) "pip>=24" "scikit-build-core>=0.11" "pybind11>=3.0" "nlohmann-json==3.12.0" "cmake>=3.26" ninja
	@touch $@

# Editable: Python sources are used in place, native sources are rebuilt into build/ by this rule.
$(VENV)/.built: $(VENV)/.tools $(NATIVE)
	PATH="$(abspath $(BIN)):$$PATH" $(PIP) install -q --no-build-isolation -e ".[$(EXTRAS)]"
	@touch $@

$(VENV)/.test: $(VENV)/.built
	$(PIP) install -q --no-build-isolation -e ".[test]"
	@touch $@

$(VENV)/.bench: $(VENV)/.built
	$(PIP) install -q --no-build-isolation -e ".[server,bench]"
	@touch $@

$(VENV)/.lint: $(VENV)/.tools
	$(PIP) install -q clang-format==23.1.5 mypy==2.4.1 ruff==0.17.6
	@touch $@

# The wheel is made from the same build folder, so nothing is compiled twice.
.venv-parity/.parity: $(VENV)/.built tests/parity/requirements.txt $(wildcard python/openjev/*.py)
	PATH="$(abspath $(BIN)):$$PATH" $(PIP) wheel -q --no-deps --no-build-isolation -w dist/parity .
	$(PYTHON) -m venv .venv-parity
	.venv-parity/bin/python -m pip --disable-pip-version-check install -q -r tests/parity/requirements.txt
	.venv-parity/bin/python -m pip --disable-pip-version-check install -q --force-reinstall --no-deps dist/parity/openjev-*.whl
	@touch $@
