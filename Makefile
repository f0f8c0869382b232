# A thin door to meson and ninja, so that the usual words work. Everything real is in meson.build and tools/.
# Knobs: JOBS=n, PREFIX=/usr/local, DESTDIR=, ASHLAR_SEED=n (replay of a random test), FUZZ_SECONDS=60, BUILD_ROOT=build.

JOBS ?= $(shell nproc)
PREFIX ?= /usr/local
FUZZ_SECONDS ?= 60
BUILD_ROOT ?= build
export JOBS FUZZ_SECONDS BUILD_ROOT

.PHONY: all run test soak lab bench install clean format format-check fuzz help

all:
	@tools/configure release
	@ninja -C $(BUILD_ROOT)/release -j $(JOBS) product

help:
	@echo 'make            build build/release'
	@echo 'make run        the demonstration, on the release build'
	@echo 'make test       four builds and every default test, under 10 minutes; ends with "N passed, N failed"'
	@echo 'make soak       random histories without end, each with its seed; stops at the first failure'
	@echo 'make lab        the long experiments; says how long before it starts, resumes where it stopped'
	@echo 'make bench      the figures beside their yardsticks'
	@echo 'make fuzz       every fuzz target for FUZZ_SECONDS=60 each'
	@echo 'make install    into PREFIX=/usr/local, below DESTDIR'
	@echo 'make format     clang-format in place; format-check only says'
	@echo 'make clean      removes build/'

run: all
	@tools/demo $(BUILD_ROOT)/release

test:
	@tools/run-tests

soak:
	@tools/soak

lab:
	@tools/lab

bench: all
	@ninja -C $(BUILD_ROOT)/release -j $(JOBS) bench-programs
	@bench/run $(BUILD_ROOT)/release

install: all
	@meson configure $(BUILD_ROOT)/release -Dprefix=$(PREFIX)
	@ninja -C $(BUILD_ROOT)/release -j $(JOBS) product
	@meson install -C $(BUILD_ROOT)/release --no-rebuild

fuzz:
	@tools/fuzz

format:
	@tools/format --write

format-check:
	@tools/format

clean:
	rm -rf $(addprefix $(BUILD_ROOT)/,release asan tsan clang lab)
	-@rmdir $(BUILD_ROOT) 2>/dev/null || true
