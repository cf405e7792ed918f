# The front door. Every target first runs tools/setup.sh, which does nothing when all is in place.
#
#   make demo               a conversation that survives kill -9, in one table
#   make serve MODEL=path   serve a GGUF model on 127.0.0.1:9337 (more flags: ARGS="...")
#   make test               build with -Werror and run every test
#   make bench              run the benchmarks (one: NAME=ttft)
#   make format             clang-format over our own sources
#   make peers              also build llama-server from the same llama.cpp source
#   make clean              remove build/ (the llama.cpp prefix stays)

SHELL := /bin/bash
.SHELLFLAGS := -e -o pipefail -c
.DEFAULT_GOAL := help
.PHONY: help setup release dev demo serve test bench format peers clean

JOBS ?= $(shell nproc)
TEST_JOBS ?= $(JOBS)
SKIPPY := build/release/bin/skippy
MODEL ?=
ARGS ?=
NAME ?=

# ccache finds objects again that another checkout compiled from the same text.
export CCACHE_BASEDIR := $(CURDIR)
export CCACHE_NOHASHDIR := 1

help:
	@sed -n '3,9p' Makefile | sed 's/^# *//'

setup:
	@tools/setup.sh

release: setup
	@cmake --preset release --log-level=WARNING
	@cmake --build build/release --parallel $(JOBS) --target skippy

dev:
	@tools/setup.sh --tests
	@cmake --preset dev --log-level=WARNING
	@cmake --build build/dev --parallel $(JOBS)

demo: release
	@python3 tools/demo/demo.py --binary $(SKIPPY)

serve: release
	@if [ -z "$(MODEL)" ]; then echo "usage: make serve MODEL=path/to/model.gguf"; exit 2; fi
	@exec $(SKIPPY) serve -m "$(MODEL)" $(ARGS)

test: dev
	@ctest --test-dir build/dev --output-on-failure --no-tests=error --parallel $(TEST_JOBS)

bench: release
	@$(SKIPPY) bench $(NAME) $(ARGS)

format:
	@clang-format -i $$(git ls-files '*.h' '*.cc')

peers:
	@tools/setup.sh --peers

clean:
	@rm -rf build
