# One command each; `make help` lists them. Everything lives in .venv and .cache of this directory.
SHELL := /bin/bash
.DEFAULT_GOAL := help

PORT ?= 19092
DIR ?= .cache/broker
# Further options for pytest, such as ARGS="tests/unit -x".
ARGS ?=
# Of `make chaos`; without a seed it takes a new one and prints it.
CHAOS_SEED ?=
CHAOS_SECONDS ?= 60
# Of `make test-versions`, such as "3.6.0 4.3.1"; by default all that the table of docs/kafka-versions.md has.
KAFKA_VERSIONS ?=
# 1, or 3 with a controller of their own.
CHAOS_BROKERS ?= 1
# Of `make utility`.
SEEDS ?=
# The first Python of the list that works and is new enough; or say `make PYTHON=/path/to/python3.13 install`.
PYTHON ?= $(shell for python in python3.11 python3.12 python3.13 python3; do \
	$$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$python && break; done)
# Tests start hundreds of programs; without compiled modules each takes a third longer to start.
unexport PYTHONDONTWRITEBYTECODE
BIN := .venv/bin
INSTALLED := .venv/installed
# Empty once the compiled kernel is in .venv, else why it is not.
KERNEL := .venv/kernel
CRATE := operators/kernel
# Packages with real streams, for `make utility`.
STREAMS := .venv/streams
# Of `make fuzz-kernel`: what it builds, how long it looks, and the checks and the coverage that it builds with.
FUZZED := $(CURDIR)/.cache/fuzz
FUZZ_SECONDS ?= 300
FUZZ_TARGET := x86_64-unknown-linux-gnu
FUZZ_FLAGS := -Zsanitizer=address -Zexternal-clangrt -Cpanic=abort -Cdebug-assertions=yes -Coverflow-checks=yes \
	-Ccodegen-units=1 -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
	-Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
	-Cllvm-args=-sanitizer-coverage-trace-compares
# Other frameworks, for `make bench`.
CONTENDERS := .cache/contenders/installed

.PHONY: help install test quick test-versions test-flink lint fuzz fuzz-kernel chaos bench longrun utility broker demo check-docker clean

help: ## Show this list
	@sed -n 's/^\([a-z-]*\):[^#]*## \(.*\)/\1	\2/p' $(MAKEFILE_LIST) | expand -t 16

install: $(INSTALLED) $(KERNEL) ## Create .venv with Eventveil, its command, the kernel and everything for development

$(INSTALLED): pyproject.toml
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer is missing (Debian, Ubuntu: apt-get install python3 python3-venv)"; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { echo "$(PYTHON) has no venv (Debian, Ubuntu: apt-get install python3-venv)"; exit 1; }
	@echo 'installing Eventveil and its development tools into .venv, some minutes the first time'
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --editable '.[dev]'
	@touch $@

# Without a compiler or crates events are read in plain Python; a kernel that does not compile is an error.
$(KERNEL): $(wildcard $(CRATE)/*.toml $(CRATE)/Cargo.lock $(CRATE)/src/*.rs) | $(INSTALLED)
	@why=''; for tool in cargo cc; do command -v $$tool >/dev/null || why="$$tool is missing"; done; \
	test -n "$$why" || cargo fetch --quiet --locked --manifest-path $(CRATE)/Cargo.toml || why='its crates cannot be fetched'; \
	if test -n "$$why"; then \
	  $(BIN)/pip uninstall --quiet --yes eventveil-kernel; \
	  echo "without the compiled kernel ($$why): events are read in plain Python, at four to eight times the cost" | tee $@; \
	else \
	  echo 'building the compiled kernel, a minute the first time'; \
	  $(BIN)/pip install --quiet ./$(CRATE) && : >$@; \
	fi

# Without ARGS in five processes; tests/lanes.py says which tests run side by side.
test: install lint ## Lint, then run every test (Kafka: KAFKA=local, docker or host:port; KAFKA_VERSION=3.9.2)
	$(BIN)/python -m pytest $(if $(ARGS),$(ARGS),-n 5 --dist loadscope --no-loadscope-reorder)

# Without ARGS in parallel, with a process more than cores: some tests wait. Few are done before others start.
quick: lint ## Lint, then unit and contract tests but the slowest (ARGS="tests/unit/mechanisms/test_uniform.py")
	$(BIN)/python -m pytest -q -m 'not slow' $(if $(ARGS),$(ARGS),-n $$(($$(getconf _NPROCESSORS_ONLN) + 1)) --dist worksteal tests/unit tests/contract)

test-versions: install ## What privacy rests on, against versions of Kafka, four minutes each: KAFKA_VERSIONS="3.6.0 4.3.1"
	@exec $(BIN)/python -m tests.kafka.versions $(KAFKA_VERSIONS)

test-flink: install ## A Flink job counts, Eventveil releases, and Flink is killed: four minutes, 138 MB of jars
	$(BIN)/python -m pytest tests/integration/test_flink.py $(ARGS)

lint: install ## Check style, types, which way imports go, and the kernel
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo --cache-dir .cache/imports
	@if test -s $(KERNEL); then echo "the kernel is not checked: $$(cat $(KERNEL))"; \
	elif ! cargo fmt --version >/dev/null 2>&1 || ! cargo clippy --version >/dev/null 2>&1; then \
	  echo 'the kernel is not checked: rustfmt or clippy is missing'; \
	else cd $(CRATE) && cargo fmt --check && PYO3_PYTHON=../../$(BIN)/python \
	  cargo clippy --quiet --locked --target-dir target/lint -- --deny warnings; fi

fuzz: install ## Ten million crafted values, damaged fetches and what one user changes, by the kernel and in plain Python (ARGS="--seed 1")
	@exec $(BIN)/python -m tests.fuzz $(ARGS)

# A panic, a wrong access to memory and a number that overflows end it, and the input stays in the folder.
fuzz-kernel: install ## The kernel under AddressSanitizer, led by its coverage: FUZZ_SECONDS=300 (needs rustup's nightly)
	@rustup run nightly rustc --version || { echo 'a nightly Rust is missing: rustup toolchain install nightly'; exit 1; }
	@mkdir -p $(FUZZED)/corpus $(FUZZED)/kernel
	@test -d $(FUZZED)/atheris || $(BIN)/pip install --quiet --target $(FUZZED)/atheris 'atheris==3.0.0'
	RUSTFLAGS='$(FUZZ_FLAGS)' PYO3_PYTHON=$(CURDIR)/$(BIN)/python rustup run nightly cargo build --quiet --release --locked \
	  --target $(FUZZ_TARGET) --target-dir $(FUZZED)/target --manifest-path $(CRATE)/Cargo.toml
	cp $(FUZZED)/target/$(FUZZ_TARGET)/release/libeventveil_kernel.so $(FUZZED)/kernel/eventveil_kernel.so
	ASAN_OPTIONS=detect_leaks=0 LD_PRELOAD=$(FUZZED)/atheris/asan_with_fuzzer.so PYTHONPATH=$(FUZZED)/kernel:$(FUZZED)/atheris:. \
	  $(BIN)/python -m tests.fuzz.guided -max_total_time=$(FUZZ_SECONDS) -max_len=4096 -timeout=60 -artifact_prefix=$(FUZZED)/ $(FUZZED)/corpus

chaos: install ## Faults of every kind against real workers: make chaos CHAOS_BROKERS=3 CHAOS_SEED=1 CHAOS_SECONDS=60
	@exec $(BIN)/python -m tests.chaos $(if $(CHAOS_SEED),--seed $(CHAOS_SEED)) --seconds $(CHAOS_SECONDS) --brokers $(CHAOS_BROKERS)

broker: install ## Run Apache Kafka in the foreground, on localhost:19092: make broker PORT=19092 DIR=path
	@exec $(BIN)/python -m tests.kafka.broker --port $(PORT) --directory '$(DIR)'

demo: install ## See it work on four weeks of real flights, in three minutes (KAFKA as for test)
	@exec $(BIN)/python -m benchmarks.demo $(ARGS)

bench: install $(CONTENDERS) ## Cost of an event, against others (ARGS="--only contenders --events 1000000")
	@exec $(BIN)/python -m benchmarks.throughput $(ARGS)

$(CONTENDERS): benchmarks/throughput/contenders/requirements.txt
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/pip install --quiet --requirement $<
	@touch $@

longrun: install ## A million timestamps through a worker, a quarter of an hour (ARGS="--timestamps 20000")
	@exec $(BIN)/python -m benchmarks.longrun $(ARGS)

utility: install $(STREAMS) ## Errors of all mechanisms side by side, ten minutes of one core (SEEDS=3 ARGS="--parts real")
	@exec $(BIN)/python -m benchmarks.utility $(if $(SEEDS),--seeds $(SEEDS)) $(ARGS)

$(STREAMS): $(INSTALLED)
	$(BIN)/pip install --quiet --editable '.[benchmarks]'
	@touch $@

check-docker: ## Validate the compose file (needs Docker's compose plugin, no engine)
	docker compose --file docker/compose.yaml config --quiet

clean: ## Remove everything that these commands made, but not results
	rm -rf .venv .cache build dist $(CRATE)/target .mypy_cache .pytest_cache .ruff_cache .hypothesis .coverage *.egg-info
	find . -name __pycache__ -type d -not -path './.git/*' -prune -exec rm -rf {} +
