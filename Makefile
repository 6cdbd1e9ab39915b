# Python and make are all that this needs; see scripts/setup.
BIN := .venv/bin
# more than a small machine has cores: half of the time they wait, for disks and for processes that start
WORKERS ?= 4
# tests start many processes: each would compile the sources anew where the environment forbids keeping bytecode;
# tests themselves are compiled while mypy runs, else each worker would do it
FREE := env -u PYTHONDONTWRITEBYTECODE
.DEFAULT_GOAL := help
.PHONY: help setup demo test prove kafka clean

help:
	@echo "make demo    set up, and run the main job on real input: the history of this repository"
	@echo "make test    set up, and check style, types and behaviour"
	@echo "make prove   run what takes long (SEED=... repeats one): matrices, random runs, kills; see docs/PROOF.md"
	@echo "make kafka   start a Kafka of your own in .headrace/kafka; see docs/kafka.md"
	@echo "make setup   prepare .venv alone (PYTHON=... names the Python to use)"
	@echo "make clean   remove what these made"

setup:
	@PYTHON="$(PYTHON)" sh scripts/setup

demo: setup
	@$(BIN)/headrace demo git

test: setup
	@echo "==> test: style (ruff)"
	@$(BIN)/ruff check --quiet .
	@$(BIN)/ruff format --quiet --check . || { echo "hint: $(BIN)/ruff format ."; exit 1; }
	@echo "==> test: types (mypy)"
	@$(FREE) $(BIN)/pytest --collect-only -qq >/dev/null 2>&1 & $(BIN)/mypy; found=$$?; wait; exit $$found
	@echo "==> test: behaviour (pytest, $(WORKERS) workers; what needs Spark shares two sessions)"
	@$(FREE) $(BIN)/pytest --numprocesses $(WORKERS) --dist loadgroup

prove: setup
	@$(FREE) $(BIN)/python scripts/prove.py --workers $(WORKERS) $(if $(SEED),--seed $(SEED))

kafka: setup
	@$(BIN)/python -m scripts.broker start .headrace/kafka

clean:
	rm -rf .venv .headrace .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist spark-warehouse
	find src tests bench -name __pycache__ -type d -prune -exec rm -rf {} +
