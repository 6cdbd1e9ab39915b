# Python and make are all that this needs; see scripts/setup.
BIN := .venv/bin
WORKERS ?= 2
.DEFAULT_GOAL := help
.PHONY: help setup demo test prove clean

help:
	@echo "make demo    set up, and run the main job on real input: the history of this repository"
	@echo "make test    set up, and check style, types and behaviour"
	@echo "make prove   run the long cases too: matrices, random runs, kills (an hour or so)"
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
	@$(BIN)/mypy
	@echo "==> test: behaviour (pytest, $(WORKERS) workers; what needs Spark shares one session)"
	@$(BIN)/pytest --numprocesses $(WORKERS) --dist loadgroup

prove: setup
	@$(BIN)/pytest --prove --numprocesses $(WORKERS) --dist loadgroup

clean:
	rm -rf .venv .headrace .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist spark-warehouse
	find src tests bench -name __pycache__ -type d -prune -exec rm -rf {} +
