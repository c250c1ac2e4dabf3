# Two commands matter: make demo, make test. Everything they need they install themselves.
.DEFAULT_GOAL := help
.PHONY: help demo test soak bench lint servers docs lock lambda clean

PYTEST := .venv/bin/python -m pytest

help: ## list the targets
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-8s %s\n", $$1, $$2}'

demo: ## run the pipeline on an embedded lake, with data it makes
	@tools/environment runtime
	@.venv/bin/neve demo

test: ## lint, types, walls and all tests, against real servers
	@tools/environment dev
	@$(MAKE) --no-print-directory -j2 lint servers
	@.venv/bin/python -m tools.side_by_side

soak: servers ## the long runs, an hour or more: kills at random moments, fuzzing, full load
	$(PYTEST) -m soak -p tests.support.progress

bench: ## measure; one JSON line a measurement
	@tools/environment dev
	@for one in decode receive consolidate age age_merges ledger direct direct_rate index index_build merge merge_remote first_load row_delta query versions move move_rewrite upkeep; do .venv/bin/python -m benchmarks.$$one; done

lint: ## formatting, lint, types and the walls between rooms
	@tools/environment dev
	.venv/bin/ruff format --check --quiet .
	.venv/bin/ruff check --quiet .
	.venv/bin/mypy
	.venv/bin/lint-imports --no-cache

servers: ## install what the tests run against, once
	@tools/environment dev
	@.venv/bin/python -m tests.support.install

docs: ## write the generated parts of docs/ anew
	@tools/environment dev
	.venv/bin/python -m tools.reference

lock: ## compile the pinned requirements from pyproject.toml
	@tools/environment dev
	tools/lock

lambda: ## build the package for AWS Lambda: dist/lambda.zip
	@tools/environment dev
	@rm -rf dist/lambda dist/lambda.zip
	@.venv/bin/python -m tools.lambda_package

clean: ## remove what was made in this directory; the caches stay
	rm -rf .venv .mypy_cache .pytest_cache .ruff_cache .hypothesis neve-demo
