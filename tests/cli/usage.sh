#!/bin/bash
# The command line itself: help, version, mistakes with their hints, exit status 2, and that nothing is done then.
# shellcheck disable=SC1091,SC2154,SC2317  # lib.sh is beside this file and sets what is used here
. "$(dirname "$0")/lib.sh"

run ashlar
ok "no verb: overview on standard error, status 2" is_status 2
ok "the overview names create" says "create"
works "--version" ashlar --version
ok "it is the project's version" prints_line "ashlar ${VERSION:-0.1.0}"
works "help" ashlar help
verbs=$(sed -n 's/^  \([a-z]*\)  *[a-z].*$/\1/p' "$out" | sort -u | grep -v '^ashlar$')
ok "help lists at least 13 verbs" test "$(echo "$verbs" | wc -l)" -ge 13
for verb in $verbs; do
    run ashlar help "$verb"
    ok "help $verb" is_status 0
    cp "$out" help.txt
    run ashlar "$verb" --help
    ok "$verb --help says the same" cmp -s help.txt "$out"
    ok "ashlar(1) describes $verb" grep -q "^\\.Ss $verb\$" "$MAN/ashlar.1"
done

fails "unknown verb, near one" 2 "no verb is called 'creat'; did you mean 'create'?" ashlar creat pool
fails "unknown verb, none near" 2 "see: ashlar help" ashlar frobnicate pool
fails "help of an unknown verb" 2 "did you mean 'list'" ashlar help lst
fails "unknown option, near one" 2 "did you mean --size?" ashlar create pool --sizes 1G
fails "unknown short option" 2 "has no option -x" ashlar create pool -x
fails "an option without its value" 2 "needs a value: SIZE" ashlar create pool --size
fails "a flag with a value" 2 "takes no value" ashlar create pool --force=yes --size 1G
fails "something missing" 2 "usage: ashlar rename POOL VOLUME NEW-NAME" ashlar rename pool a
fails "a word too many" 2 "'c' is one word too many" ashlar list pool c
fails "no operand at all" 2 "usage: ashlar list POOL" ashlar list
fails "a bad timeout" 2 "--timeout '0'" ashlar list pool --timeout 0
fails "a worse timeout" 2 "--timeout 'soon'" ashlar list pool --timeout=soon
fails "unknown property at create" 2 "did you mean 'record-size'?" ashlar create pool v 1G -o recordsize=4K
fails "unknown property of get" 2 "did you mean 'compression-ratio'?" ashlar get pool v compressionratio
fails "property of a volume asked of the pool" 2 "no property of a pool is called 'record-size'" ashlar get pool . record-size
fails "unknown property of set" 2 "did you mean 'compression'?" ashlar set pool v Compression=lz4
fails "set of a read-only property" 2 "is read-only" ashlar set pool v guid=1
fails "set of a property that is fixed" 2 "is fixed when a volume is created" ashlar set pool v record-size=4K
fails "set of a property of the pool" 2 "no property of a pool can be set" ashlar set pool . segment-size=1M
fails "set without a value" 2 "it must be property=value" ashlar set pool v compression
fails "set of a bad value" 2 "zstd" ashlar set pool v compression=gzip
fails "-o without a value" 2 "it must be name=value" ashlar create pool v 1G -o compression
fails "-o twice" 2 "is given twice" ashlar create pool v 1G -o compression=lz4 -o compression=off
fails "destroy of a whole pool" 2 "a whole pool goes with its file" ashlar destroy pool
fails "create with a size and no name" 2 "a pool is made with: ashlar create POOL --size SIZE" ashlar create pool 10G
fails "create of a volume with --size" 2 "a volume's size follows its name" ashlar create pool v 1G --size 1G
fails "a pool without a size" 2 "say how large the pool may grow" ashlar create pool
fails "a bad address to serve at" 2 "it must be unix:PATH or tcp:ADDRESS:PORT" ashlar serve pool --nbd 10809
fails "an IPv6 address without brackets" 2 "stands in brackets" ashlar serve pool --nbd tcp:::1:10809
fails "a bad port" 2 "port: '70000' is not a number from 0 to 65535" ashlar serve pool --nbd tcp:localhost:70000
fails "TCP without an address" 2 "name the address" ashlar serve pool --nbd tcp:
fails "a descriptor that is not open" 2 "--ready-fd 77" ashlar serve pool --ready-fd 77
fails "too small a cache" 2 "--cache '1M': at least 8M" ashlar serve pool --cache 1M
fails "export of JSON and data to one place" 2 "both want standard output" ashlar export pool v - --json

run ashlar creat pool --json
run ashlar list pool --jsn
ok "a mistake with --json elsewhere is no JSON" test ! -s "$out"
run ashlar list --json
ok "a mistake with --json: JSON with the error" json_is 'j["error"]["name"]' EINVAL
ok "and status 2" is_status 2

ok "nothing was made by all that" test ! -e pool
run ashlar list pool --json
ok "an error with --json names its number" json_is 'j["error"]["name"]' ENOENT
run bash -c '"$ASHLAR" help >/dev/full'
ok "output that cannot be written is a failure" is_status 1
run bash -c '"$ASHLAR" help <&- >&- 2>&-'
ok "closed descriptors do no harm" test "$status" -le 1
finish
