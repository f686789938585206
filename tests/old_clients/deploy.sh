#!/bin/bash
# Calls the tool as the old deployment job does: each verb in an endless loop inside an outer time-out.
# Arguments: the version, then the hosts as the inventory writes them (with underscores).
set -e
version=$1
shift
limit=${LIMIT:-20}

debug() { python -m jiocloud.orchestrate debug_timeout "$version"; }
trap debug EXIT

timeout "$limit" bash -c 'while ! python -m jiocloud.orchestrate ping; do sleep 0.2; done'
timeout "$limit" bash -c "while ! python -m jiocloud.orchestrate trigger_update $version; do sleep 0.2; done"
printf '%s\n' "$@" | tr _ - >"$FACTS/hosts"
timeout "$limit" bash -c "while ! python -m jiocloud.orchestrate verify_hosts $version < $FACTS/hosts; do sleep 0.2; done"
timeout "$limit" bash -c "while ! python -m jiocloud.orchestrate check_single_version -v $version; do sleep 0.2; done"
timeout "$limit" bash -c 'while ! python -m jiocloud.orchestrate get_failures --hosts; do sleep 0.2; done'
