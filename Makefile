# `make help` lists the targets.
.PHONY: help check check-format check-lints check-scripts check-docs check-dependencies check-commits \
	schemas build demo demo-puppet test test-long bench deb tarball hooks format

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | awk -F '\t' '{ printf "%-20s %s\n", $$1, $$2 }'

check: build check-format check-lints ## format, lints, dependency law, unit tests
	cargo nextest run --workspace -E 'not package(orchestrate-tests) and not kind(test) or test(architecture::) or test(modules::) or test(signatures::) or test(links::) or test(words::)'

check-format: ## is the code formatted?
	cargo fmt --all --check

check-lints: ## clippy, with warnings denied
	cargo clippy --workspace --all-targets --quiet -- -D warnings
	cargo clippy -p solo-etcd --no-default-features --lib --quiet -- -D warnings

check-scripts: ## shellcheck
	packaging/scripts/check-scripts

schemas: build ## write docs/schema and the description of the API of the observer from the types
	"$${CARGO_TARGET_DIR:-target}/debug/answer-schemas"

check-docs: ## rustdoc, with warnings denied
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --document-private-items --quiet

check-dependencies: ## licences, bans, sources, yanked versions and advisories of dependencies
	packaging/scripts/check-dependencies

check-commits: ## length of commit subjects
	packaging/scripts/check-commits

build: ## debug build of everything
	cargo build --workspace

demo: ## install what is missing, build, and show the main job
	packaging/scripts/demo

demo-puppet: ## the same with Puppet as the steps; needs root
	packaging/scripts/demo-puppet

test: ## install what is missing and run all tests
	packaging/scripts/test

test-long: ## everything that takes too long for every change
	packaging/scripts/test-long

bench: ## measure speed and memory, as ratios against the raw store in the same run
	packaging/scripts/bench

deb: ## build Debian packages in target/deb
	packaging/scripts/deb

tarball: ## build a tarball in target/tarball, for machines that do not use the packages
	packaging/scripts/tarball

hooks: ## run `make check` before each push
	printf '#!/bin/sh\nexec make check\n' >"$$(git rev-parse --git-path hooks)/pre-push"
	chmod +x "$$(git rev-parse --git-path hooks)/pre-push"

format: ## format the code
	cargo fmt --all
