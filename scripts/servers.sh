#!/bin/sh
# Installs the programs that some tests run, where that is allowed: root on Debian or Ubuntu.
# Elsewhere those tests are skipped, and the end of the run lists them.
set -eu
[ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1 || exit 0

missing=""
for each in prometheus:prometheus influxd:influxdb redis-server:redis-server ip:iproute2 pg_ctlcluster:postgresql; do
    command -v "${each%:*}" >/dev/null 2>&1 || missing="$missing ${each#*:}"
done
[ -n "$missing" ] || exit 0

echo "installing what tests run:$missing"
# The tests start them: keep Debian from running them as services.
policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
    trap 'rm -f "$policy"' EXIT
    printf '#!/bin/sh\nexit 101\n' >"$policy"
    chmod +x "$policy"
fi
apt-get update -qq || true
for package in $missing; do
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$package" >/dev/null ||
        echo "$package could not be installed; the tests that need it are skipped" >&2
done
