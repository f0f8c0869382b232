#!/bin/bash
# create: pools and volumes, sizes and names that are refused, and that what is refused changes nothing.
# shellcheck disable=SC1091,SC2154,SC2317  # lib.sh is beside this file and sets what is used here
. "$(dirname "$0")/lib.sh"

works "a pool" ashlar create pool --size 256M
ok "it is a sparse file of that size" test "$(bytes_of pool)" -eq $((256 * 1024 * 1024))
ok "which takes little" test "$(held_bytes pool)" -lt $((64 * 1024 * 1024))
ok "only its owner can read it" test "$(stat -c %a pool)" = 600
sum=$(sha256sum <pool)
fails "a pool where one is" 1 "exists and holds 256M; nothing was changed" ashlar create pool --size 256M
fails "with --force too" 1 "--force is for block devices" ashlar create pool --size 256M --force
ok "nothing was changed" test "$(sha256sum <pool)" = "$sum"
echo precious >file
fails "a pool where a file is" 1 "exists and holds 9; nothing was changed" ashlar create file --size 256M
ok "the file is still there" test "$(cat file)" = precious
: >empty
works "a pool in an empty file" ashlar create empty --size 256M
works "which is one" ashlar list empty
fails "a pool on a directory" 1 "neither a file nor a block device" ashlar create . --size 256M
fails "a pool in a directory that is not there" 1 "its directory does not exist" ashlar create no/pool --size 256M
fails "a pool of 1M" 1 "too small" ashlar create small --size 1M
ok "leaves no file" test ! -e small
: >empty2
fails "a pool of 1M in an empty file" 1 "too small" ashlar create empty2 --size 1M
ok "leaves it empty" test ! -s empty2
fails "a bad property of a pool" 2 "did you mean 'segment-size'?" ashlar create new --size 256M -o segmentsize=1M
fails "a property that a pool has not" 2 "no property of a pool is called 'compression'" ashlar create new --size 256M -o compression=lz4
fails "a segment size that is no power of two" 2 "power of two" ashlar create new --size 256M -o segment-size=3M
ok "leave no file" test ! -e new

# Sizes as people get them wrong, for a pool and for a volume.
bad_size() {
    fails "a pool of size '$1'" 2 "$2" ashlar create new --size "$1"
    fails "a volume of size '$1'" 2 "$2" ashlar create pool new "$1"
    fails "a resize to '$1'" 2 "$2" ashlar resize pool first "$1"
}
works "a volume" ashlar create pool first 10G
ok "says what it made" prints "first: 10G, zstd-3, records of 16K"
bad_size -1 "sign"
bad_size +1G "sign"
bad_size 3.7X "has a fraction"
bad_size 10KB "1024"
bad_size 10GB "1024"
bad_size 1e9 "is not a size"
bad_size 18446744073709551616 "too large"
bad_size 99999999999999999999999999 "too large"
bad_size 8192P "too large"
bad_size "" "a size is digits"
bad_size "1 G" "is no"
fails "a pool of 0" 2 "holds nothing" ashlar create new --size 0
fails "a volume of 0" 2 "a volume of 0 bytes is no volume" ashlar create pool new 0
fails "a volume of 1000 bytes" 2 "no multiple of 512 bytes; the next one is 1024" ashlar create pool new 1000
fails "a volume that is too large" 2 "at most 4096P" ashlar create pool new 5000P
ok "no file was made" test ! -e new
run ashlar list pool
ok "and no volume" test "$(wc -l <"$out")" -eq 2

bad_name() {
    fails "the name $(printf %q "$1")" 2 "$2" ashlar create pool "$1" 1G
}
bad_name "" "name"
bad_name . "name"
bad_name .. "name"
bad_name a/b "name"
bad_name "a b" "name"
bad_name "a@b" "name"
bad_name $'a\nb' "name"
bad_name "$(printf 'caf\303\251')" "name"
bad_name "$(printf 'x%.0s' {1..241})" "name"
long=$(printf 'x%.0s' {1..240})
works "a name of 240 bytes" ashlar create pool "$long" 1G
works "a name with all characters" ashlar create pool "aZ09._:+-" 1G
works "a name that looks like an option" ashlar create pool -- -odd 1G
ok "it is a volume" prints "-odd"
fails "a volume that exists" 1 "first" ashlar create pool first 1G
run ashlar get pool first size --json
ok "and keeps its size" json_is 'j["properties"]["size"]' $((10 * 1024 * 1024 * 1024))

fails "records too large for the segments" 1 "at most 65536" ashlar create pool props 64M -o record-size=128K
works "properties" ashlar create pool props 64M -o compression=zstd-19 -o record-size=64K
run ashlar get pool props compression
ok "compression is set" prints_line zstd-19
run ashlar get pool props record-size
ok "record-size is set" prints_line 64K
works "a pool with larger segments" ashlar create large --size 1G -o segment-size=16M
works "takes records of 1M" ashlar create large v 1G -o record-size=1M
fails "a bad compression" 2 "zstd" ashlar create pool new 1G -o compression=gzip
fails "a bad record size" 2 "power of two from 4K to 1M" ashlar create pool new 1G -o record-size=12K
works "options before operands, with =" ashlar create --timeout=5 -ocompression=off pool off 1G
run ashlar get pool off compression
ok "compression off" prints_line off
works "JSON" ashlar create pool j 1G --json
ok "has the properties" json_is 'j["properties"]["size"]' $((1024 * 1024 * 1024))
works "JSON of a new pool" ashlar create pool2 --size 300M --json
ok "has its size" json_is 'j["size"]' $((300 * 1024 * 1024))
fails "a volume in a pool that is not there" 1 "there is no pool at 'nowhere'; make one: ashlar create nowhere --size 10G" ashlar create nowhere v 1G

# Block devices.
truncate -s 200M disk.img
if loop_attach disk.img; then
    fails "a block device is taken whole" 1 "leave --size out" ashlar create "$loop" --size 100M
    fails "and must be large enough" 1 "is too small: it holds 200M, not 1G" ashlar create "$loop" --size 1G
    works "a pool on a block device" ashlar create "$loop"
    works "a volume in it" ashlar create "$loop" v 1G
    fails "a pool where one is" 1 "is not empty; --force makes a pool and loses what is on it" ashlar create "$loop"
    works "the pool is still there" ashlar list "$loop"
    ok "with its volume" prints "v "
    ok "a server on a block device" serve "$loop" --nbd "unix:$directory/loop.nbd"
    works "verbs find it" ashlar create "$loop" w 1G
    works "stop" ashlar stop "$loop"
    random_file copy.img 1000000
    works "import into it" ashlar import "$loop" c copy.img
    fails "an export onto the pool's own device" 1 "is the pool itself; nothing was changed" ashlar export "$loop" v "$loop" --force
    works "after which it is still there" ashlar list "$loop"
    works "--force makes a new pool" ashlar create "$loop" --force
    run ashlar list "$loop" --json
    ok "an empty one" json_is 'j["volumes"]' "[]"
    rm -f source
    ashlar create source --size 100M >/dev/null
    ashlar import source c copy.img >/dev/null
    random_file target.img 2097152
    loop_attach target.img
    fails "export over a block device" 1 "--force overwrites" ashlar export source c "$loop"
    works "export over a block device with --force" ashlar export source c "$loop" --force
    ok "holds the data" cmp -n 1000000 copy.img "$loop"
    works "import from a block device" ashlar import source d "$loop"
    run ashlar get source d size
    ok "takes its size" prints_line 2M
    loop_detach
else
    skip "block devices" "no loop device to be had"
fi
finish
