#!/bin/bash
# The cron script of the later deployment: it validates first, and ends with 9 while check_puppet says 9. The
# rest is that of the older one.

run-parts --regex=. "$VALIDATION_DIRECTORY"
python -m jiocloud.orchestrate update_own_status validation_service $?

python -m jiocloud.orchestrate check_puppet
if [ $? -eq 9 ]; then
    echo "puppet is disabled on this host"
    exit 9
fi

. "$(dirname "$0")/maybe-upgrade.sh"
