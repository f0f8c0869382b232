#!/bin/bash
# check --repair on a pool that the engine wrote: both copies of a leaf, and of the node above the leaves, overwritten.
# shellcheck disable=SC1091,SC2154,SC2317  # lib.sh is beside this file and sets what is used here
. "$(dirname "$0")/lib.sh"

# Overwrites both copies of a map node: destroy_node POOL VOLUME LEVEL NUMBER
destroy_node() {
    "$ASHLAR" dump "$1" volume "$2" --json >map.json
    "$ASHLAR" dump "$1" chunks --json >chunks.json
    python3 - "$@" <<'END'
import json, os, sys
pool, _, level, number = sys.argv[1:]
node = next(o for o in json.load(open("map.json"))
            if o["object"] == "node" and o["level"] == int(level) and o["number"] == int(number))
chunk = next(o for o in json.load(open("chunks.json")) if o["object"] == "chunk" and
             o["address"] <= node["address"] < o["address"] + o["chunk_bytes"])
with open(pool, "r+b") as f:
    for copy in range(2):
        f.seek(chunk["device_offset_bytes"] + node["address"] - chunk["address"] + copy * chunk["chunk_bytes"])
        f.write(os.urandom(node["length"]))
END
}

random_file input 20971520
ashlar create pool --size 256M >/dev/null
ashlar import pool disk input >/dev/null
for node in "0 2" "1 0"; do
    cp --sparse=always pool damaged
    # shellcheck disable=SC2086  # two words
    destroy_node damaged disk $node
    run ashlar check damaged
    ok "node $node: check finds it" prints "NODE-DAMAGED: both copies of a map node are damaged"
    ok "node $node: status 1" is_status 1
    works "node $node: repaired" ashlar check damaged --repair
    ok "node $node: from the log" prints "rebuilt from the log"
    works "node $node: export" ashlar export damaged disk back --force
    ok "node $node: nothing is lost" cmp -s input back
done

# A volume made smaller and larger again: what was cut off reads as zeroes, and nothing in the log says so.
works "smaller" ashlar resize pool disk 12124160 --force
ashlar resize pool disk 20M >/dev/null
head -c 12124160 input >expected
truncate -s 20971520 expected
works "smaller and larger: export" ashlar export pool disk back --force
ok "smaller and larger: the end reads as zeroes" cmp -s expected back

cp --sparse=always pool damaged
destroy_node damaged disk 1 0
run ashlar check damaged --repair
ok "the node above: put together anew" prints "put together anew"
ok "and all is well" is_status 0
works "export" ashlar export damaged disk back --force
ok "nothing is lost, and nothing that was cut off came back" cmp -s expected back

cp --sparse=always pool damaged
destroy_node damaged disk 0 5
run ashlar check damaged
ok "a leaf of which the log does not tell all: found" prints "NODE-DAMAGED"
run ashlar check damaged --repair --json
ok "its records are put together anew" json_is 'any("put together anew" in r["what"] for r in j["repairs"])' True
ok "no node is damaged any more" json_is 'any(p["id"] == "NODE-DAMAGED" for p in j["problems"])' False
ok "what is not certain is lost" json_is '{p["id"] for p in j["problems"]} - {"RANGE-LOST"}' 'set()'
cp "$out" report.json
run ashlar check damaged --json
ok "the next check finds the same" json_is 'j["problems"] == json.load(open("report.json"))["problems"]' True
serve damaged
# The distribution's Python: the module is made for that one.
if /usr/bin/python3 -c 'import nbd' 2>/dev/null; then
    run env SOCKET="$directory/damaged.nbd" /usr/bin/python3 -c '
import json, nbd, os
lost = {p["offset_bytes"] // 16384 for p in json.load(open("report.json"))["problems"]}
h = nbd.NBD()
h.set_export_name("disk")
h.connect_unix(os.environ["SOCKET"])
want, wrong, errors, good = open("expected", "rb").read(), 0, set(), 0
for i in range(len(want) // 16384):
    try:
        got = h.pread(16384, i * 16384)
    except nbd.Error:
        errors.add(i)
        continue
    wrong += got != want[i * 16384:(i + 1) * 16384]
    good += 640 <= i < 740 and got == want[i * 16384:(i + 1) * 16384]
print("wrong", wrong, "errors as reported", errors == lost, "from the leaf", good > 0 and len(errors) > 0)'
    ok "not a byte is wrong, errors are what was reported" prints_line "wrong 0 errors as reported True from the leaf True"
else
    skip "not a byte is wrong" "python3-libnbd is not there"
fi
finish
