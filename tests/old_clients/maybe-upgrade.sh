#!/bin/bash
# Calls the tool as the root cron script of the old deployment does: every minute, under a run-one lock.
# $CONFIG_RUN stands for the configuration run, $VALIDATION_DIRECTORY for the directory of checks.

orchestrate() { python -m jiocloud.orchestrate "$@"; }

run_config() {
    # A configuration run names its version by this command and aborts if that fails or prints nothing.
    config_version=$(python -m jiocloud.orchestrate current_version) || return 1
    [ -n "$config_version" ] || return 1
    "$CONFIG_RUN" "$config_version"
    code=$?
    orchestrate update_own_status puppet_service $code
    case $code in
    0 | 2) return 0 ;;
    esac
    orchestrate update_own_status validation_service 1
    sleep "${SLEEP:-5}"
    exit 1
}

validate() {
    run-parts --regex=. "$VALIDATION_DIRECTORY"
    code=$?
    orchestrate update_own_status validation_service $code
    return $code
}

orchestrate pending_update
case $? in
0)
    [ -n "$BETWEEN" ] && . "$BETWEEN"
    pending_version=$(orchestrate current_version)
    echo "current_version=$pending_version" >"$FACTS/current_version.txt"
    run_config
    ;;
3) run_config ;;
1 | 2) ;;
esac

orchestrate local_health
[ $? -eq 0 ] || run_config

validate || exit 1
# Unquoted on purpose: without a pending version this is the getter.
orchestrate local_version $pending_version
orchestrate update_own_info
