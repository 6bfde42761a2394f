#!/bin/bash
# Health check of a container. Exit status 0 means that the server on the port answers a request with 200; without a path,
# that something listens on the port.
#
#   healthy PORT [PATH]
#
# The address is MEMBER_ADDRESS, or loopback.
#
# The script needs only bash, because it runs every few seconds. It reads the whole answer, so that the server sees no broken
# connection.
exec 3<>"/dev/tcp/${MEMBER_ADDRESS:-127.0.0.1}/$1" || exit 1
[[ $# == 1 ]] && exit 0
printf 'GET %s HTTP/1.0\r\nHost: localhost\r\n\r\n' "$2" >&3
read -r _ status _ <&3
while read -r -N 65536 -u 3 _; do :; done
[[ $status == 200 ]]
