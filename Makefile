# The two commands of the README. Both make .venv on first use; PYTHON names the interpreter to make it with.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test clean

demo: .venv/installed
	$(BIN)/ider compare --benchmark digits --methods finetune,er,er-matched,er+id,joint --memory 30 --num-seeds 5 --out demo

test: .venv/installed-tests
	scripts/check

clean:
	rm -rf .venv demo

.venv/bin/python:
	$(PYTHON) -m venv .venv

.venv/installed: .venv/bin/python constraints.txt pyproject.toml
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable .
	touch $@

.venv/installed-tests: .venv/installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable ".[test]"
	touch $@
