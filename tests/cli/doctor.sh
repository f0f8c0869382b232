#!/bin/bash
# doctor: finishes in bounded time, measures everything it says it measures, and its JSON is what the text says.
# shellcheck disable=SC1091,SC2154,SC2317  # lib.sh is beside this file and sets what is used here
. "$(dirname "$0")/lib.sh"

works "without a pool" ashlar doctor
for what in kernel io_uring descriptors "file system" "flush, written blocks" "flush, allocated blocks" O_DIRECT \
    "hole punching" "lz4, 16K, compress" "zstd-3, 128K, decompress" "xxh3-128, 16K"; do
    ok "it looks at: $what" prints "  $what: "
done
ashlar create pool --size 256M >/dev/null
run ashlar doctor pool --json
ok "with a pool" is_status 0
ok "it looks at the room that the pool has" json_is '[f["verdict"] for f in j["findings"] if f["name"] == "room"]' "['ok']"
ok "codec speeds are numbers" json_is 'all(f["figures"]["ours-bytes-per-second"] > 1e6 for f in j["findings"] if f["name"].startswith(("lz4", "zstd")))' True
ok "the checksum is measured against the function that the engine calls" json_is '[f["name"] for f in j["findings"] if f["name"].startswith("xxh3") and not 1 / 3 < f["figures"]["ratio"] < 3]' "[]"
ok "as are flushes" json_is 'all(f["figures"]["count"] > 0 for f in j["findings"] if f["name"].startswith("flush"))' True
ok "the counts agree" json_is 'sum(f["verdict"] == "warning" for f in j["findings"]) == j["warnings"]' True
truncate -s 900P huge 2>/dev/null || truncate -s 8T huge
head -c 100 /dev/zero >little # codecs were measured already
run ashlar doctor huge --data little --json
ok "a pool that its file system cannot hold is warned of" json_is '[f["verdict"] for f in j["findings"] if f["name"] == "room"]' "['warning']"
if mkdir -p "/dev/shm/ashlar-doctor-$$" 2>/dev/null; then
    run ashlar doctor "/dev/shm/ashlar-doctor-$$" --data little
    rmdir "/dev/shm/ashlar-doctor-$$"
    ok "memory is not taken for a disk" prints "nothing in it survives"
    ok "and its flushes are not believed" prints "too fast to be durable"
else
    skip "memory is not taken for a disk" "no /dev/shm"
fi
run ashlar doctor --data little
ok "too little data is said to be too little" prints "256K are needed"
run ashlar doctor nowhere --data little
ok "a place that is not there is a problem" is_status 1
ok "only these files are here" test "$(find . -type f -not -name '.*' | sort | tr '\n' ' ')" = "./huge ./little ./pool "
finish
