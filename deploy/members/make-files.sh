#!/usr/bin/env bash
# Files of controllers that share a state in etcd, one folder per member: certificates, configuration, settings of etcd.
#
#   make-files.sh FOLDER NAME=ADDRESS NAME=ADDRESS NAME=ADDRESS
#
#   FOLDER/NAME/signalbox     for /etc/signalbox of the member's machine
#   FOLDER/NAME/etcd          for /etc/etcd
#   FOLDER/NAME/member.env    environment of etcd: /etc/default/etcd
#   FOLDER/operator.token     token of an operator of the API
#   FOLDER/authorities        keys that sign certificates: keep them on another machine
#
# Authorities and tokens that exist are used again: run the script once a year, before the certificates end.
set -euo pipefail
umask 077

die() {
    echo "make-files.sh: $*" >&2
    exit 2
}

[[ $# -ge 2 ]] || die "usage: make-files.sh FOLDER NAME=ADDRESS NAME=ADDRESS NAME=ADDRESS"
readonly folder=$1
shift
names=() addresses=()
for member in "$@"; do
    [[ $member =~ ^([A-Za-z0-9-]+)=([A-Za-z0-9.-]+)$ ]] || die "'$member' is not NAME=ADDRESS"
    names+=("${BASH_REMATCH[1]}") addresses+=("${BASH_REMATCH[2]}")
done
readonly ca=$folder/authorities

# new ARGUMENTS... : make a key and a certificate
new() {
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes "$@" 2>/dev/null
}

# authority NAME
authority() {
    [[ -e $ca/$1.pem ]] || new -days 3650 -subj "/CN=signalbox $1" -keyout "$ca/$1.key" -out "$ca/$1.pem"
}

# certificate AUTHORITY NAME FILE [ADDRESS]: sign a certificate for the name and the address: FILE.pem, with its key FILE.key
certificate() {
    local extensions=(-addext basicConstraints=critical,CA:FALSE)
    case ${4-} in
    "") ;;
    127.*) extensions+=(-addext "subjectAltName=IP:$4,IP:127.0.0.1") ;; # members on one machine call from 127.0.0.1
    *[!0-9.]*) extensions+=(-addext "subjectAltName=DNS:$4") ;;
    *) extensions+=(-addext "subjectAltName=IP:$4") ;;
    esac
    new -days 400 -subj "/CN=$2" -CA "$ca/$1.pem" -CAkey "$ca/$1.key" "${extensions[@]}" -keyout "$3.key" -out "$3.pem"
}

# joined PATTERN: the pattern for each member, with @NAME@ and @ADDRESS@ replaced, separated by commas
joined() {
    local each=() number text
    for number in "${!names[@]}"; do
        text=${1//@NAME@/${names[number]}}
        each+=("${text//@ADDRESS@/${addresses[number]}}")
    done
    (IFS=, && echo "${each[*]}")
}

mkdir -p "$ca"
# Separate authorities: otherwise a client or a switch could pose as a member.
for name in ca members-ca etcd-ca switches-ca; do authority "$name"; done
if [[ ! -e $folder/tokens.toml ]]; then
    openssl rand -hex 32 | tr -d '\n' >"$folder/operator.token"
    hash=$(sha256sum <"$folder/operator.token")
    printf '[[token]]\nname = "operator"\nsha256 = "%s"\nrole = "operator"\n' "${hash%% *}" >"$folder/tokens.toml"
fi

for number in "${!names[@]}"; do
    name=${names[number]} address=${addresses[number]}
    signalbox=$folder/$name/signalbox etcd=$folder/$name/etcd
    mkdir -p "$signalbox" "$etcd"
    certificate etcd-ca "$name" "$etcd/etcd" "$address"
    certificate etcd-ca signalbox "$signalbox/etcd"
    certificate members-ca "$name" "$signalbox/member" "$address"
    certificate ca controller "$signalbox/controller" "$address"
    cp "$ca/etcd-ca.pem" "$etcd"
    cp "$ca/etcd-ca.pem" "$ca/members-ca.pem" "$ca/switches-ca.pem" "$folder/tokens.toml" "$signalbox"
    cat >"$folder/$name/member.env" <<END
MEMBER_ADDRESS=$address
ETCD_NAME=$name
ETCD_DATA_DIR=/var/lib/etcd/signalbox
ETCD_LISTEN_CLIENT_URLS=https://$address:2379
ETCD_ADVERTISE_CLIENT_URLS=https://$address:2379
ETCD_LISTEN_PEER_URLS=https://$address:2380
ETCD_INITIAL_ADVERTISE_PEER_URLS=https://$address:2380
ETCD_LISTEN_METRICS_URLS=http://$address:2381
ETCD_INITIAL_CLUSTER=$(joined "@NAME@=https://@ADDRESS@:2380")
ETCD_INITIAL_CLUSTER_TOKEN=signalbox
ETCD_CLIENT_CERT_AUTH=true
ETCD_CERT_FILE=/etc/etcd/etcd.pem
ETCD_KEY_FILE=/etc/etcd/etcd.key
ETCD_TRUSTED_CA_FILE=/etc/etcd/etcd-ca.pem
ETCD_PEER_CLIENT_CERT_AUTH=true
ETCD_PEER_CERT_FILE=/etc/etcd/etcd.pem
ETCD_PEER_KEY_FILE=/etc/etcd/etcd.key
ETCD_PEER_TRUSTED_CA_FILE=/etc/etcd/etcd-ca.pem
ETCD_AUTO_COMPACTION_RETENTION=1
ETCD_HEARTBEAT_INTERVAL=50
ETCD_ELECTION_TIMEOUT=500
END
    [[ -e $signalbox/signalbox.toml ]] && continue # it may have been changed
    cat >"$signalbox/signalbox.toml" <<END
# Configuration of member $name. The members' files differ in names and addresses only.
store = "etcd://$(joined "@ADDRESS@:2379")"

[etcd]
ca_certificates = "/etc/signalbox/etcd-ca.pem"
certificate = "/etc/signalbox/etcd.pem"
private_key = "/etc/signalbox/etcd.key"

[members]
name = "$name"
api = "$address:50052"
certificate = "/etc/signalbox/member.pem"
private_key = "/etc/signalbox/member.key"
ca_certificates = "/etc/signalbox/members-ca.pem"
certificate_names = [$(joined '"@NAME@"')]

[openflow]
host = "$address"
certificate = "/etc/signalbox/controller.pem"
private_key = "/etc/signalbox/controller.key"
ca_certificates = "/etc/signalbox/switches-ca.pem"

[api]
listen = ["$address:50051", "unix:/run/signalbox/api.sock"]
certificate = "/etc/signalbox/controller.pem"
private_key = "/etc/signalbox/controller.key"
tokens = "/etc/signalbox/tokens.toml"

[metrics]
host = "$address"
END
done
