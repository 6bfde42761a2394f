#!/bin/bash
# Health check of a container: exit status 0 when what listens on a port of it answers a request with 200; without a
# path when something listens there.
#
#   healthy PORT [PATH]
#
# Only bash, as this runs every few seconds. The answer is read to its end, so that the server sees no broken connection.
exec 3<>"/dev/tcp/127.0.0.1/$1" || exit 1
[[ $# == 1 ]] && exit 0
printf 'GET %s HTTP/1.0\r\nHost: localhost\r\n\r\n' "$2" >&3
read -r _ status _ <&3
while read -r -N 65536 -u 3 _; do :; done
[[ $status == 200 ]]
