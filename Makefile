# What each target does stands in README.md and CONTRIBUTING.md.
.PHONY: check build test test-long bench deb demo demo-puppet install-tools format

check: ## format, lints, dependency law, unit tests; seconds
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --quiet -- -D warnings
	cargo clippy -p solo-etcd --no-default-features --lib --quiet -- -D warnings
	cargo nextest run --workspace --exclude orchestrate-tests
	cargo nextest run -p orchestrate-tests -E 'test(architecture::) or test(modules::)'

build:
	cargo build --workspace

demo: ## the main job in front of your eyes
	packaging/scripts/demo

demo-puppet: ## the same with Puppet as the steps
	packaging/scripts/demo-puppet

test: ## installs what is missing, runs everything
	packaging/scripts/test

test-long: ## what takes longer than the everyday run
	packaging/scripts/test-long

bench: ## speed and memory, as ratios against the raw store in the same run
	packaging/scripts/bench

deb: ## Debian packages in target/deb
	packaging/scripts/deb

format:
	cargo fmt --all
