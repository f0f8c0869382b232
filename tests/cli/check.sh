#!/bin/bash
# check and dump as verbs among others: exit status, hints, JSON errors; pools that are served; progress on a terminal.
# shellcheck disable=SC1091,SC2154,SC2317  # lib.sh is beside this file and sets what is used here
. "$(dirname "$0")/lib.sh"

for verb in check dump; do
    fails "$verb: missing file" 1 "there is no pool at 'nothing'; make one: ashlar create nothing --size 10G" ashlar $verb nothing
    fails "$verb: no pool named" 2 "usage: ashlar $verb POOL" ashlar $verb
    run ashlar $verb nothing --json
    ok "$verb --json: status 1" is_status 1
    ok "$verb --json: the error as every verb has it" json_is 'sorted(j["error"])' "['errno', 'name', 'text']"
    ok "$verb --json: its name" json_is 'j["error"]["name"]' ENOENT
    run ashlar $verb --json
    ok "$verb --json without a pool: status 2" is_status 2
    ok "$verb --json without a pool: JSON" json_is 'j["error"]["name"]' EINVAL
done
fails "check: an option near one" 2 "check has no option --repiar; did you mean --repair?" ashlar check pool --repiar
fails "check: another one" 2 "did you mean --quick?" ashlar check pool --quik
fails "check: one word too many" 2 "'b' is one word too many" ashlar check a b
fails "check: what cannot go together" 2 "--quick and --all cannot go together" ashlar check pool --quick --all
fails "check: repair of an older label" 2 "--repair and --label cannot go together" ashlar check pool --repair --label 3
fails "check: a label that is no number" 2 "--label: 'x' is not a number" ashlar check pool --label x
fails "dump: a word near one" 2 "did you mean 'chunks'?" ashlar dump pool chunk
fails "dump: an option near one" 2 "did you mean --json?" ashlar dump pool --jsn
fails "dump: a node without address" 2 "usage: ashlar dump POOL node ADDRESS" ashlar dump pool node

random_file noise 1000000
fails "check: no pool" 1 "noise: not an Ashlar pool" ashlar check noise
fails "dump: no pool" 1 "noise: not an Ashlar pool" ashlar dump noise
fails "check: a directory" 1 "directory" ashlar check .

ashlar create pool --size 512M >/dev/null
random_file input 100000000
ashlar import pool disk input >/dev/null
works "check" ashlar check pool
ok "clean" prints_line clean
fails "no such label" 1 "no intact label 999" ashlar check pool --label 999
works "dump" ashlar dump pool
run ashlar dump pool volume nosuch --json
ok "dump of what is not there: status 1" is_status 1
ok "its output is one JSON value" json_is 'j' '[]'

# ---- served ----

serve pool
works "a served pool is checked" ashlar check pool
ok "and is clean" prints_line clean
ok "nothing on standard error" test ! -s "$err"
before=$(sha256sum <pool)
fails "a served pool is not repaired" 1 "pool is in use by process $server (ashlar); stop that one first" ashlar check pool --repair
run ashlar check pool --repair --json
ok "with --json: the error names its number" json_is 'j["error"]["name"]' EBUSY
ok "nothing was written" test "$before" = "$(sha256sum <pool)"
works "a served pool is dumped" ashlar dump pool chunks

# While it is written to: clean, or no answer, and said so; never damage that is none.
(for i in 1 2 3; do "$ASHLAR" import pool "more$i" input; "$ASHLAR" destroy pool "more$i"; done) >writer.log 2>&1 &
writer=$!
looks=0 clean=0 refused=0
while kill -0 $writer 2>/dev/null || [ $looks -eq 0 ]; do
    run ashlar check pool
    looks=$((looks + 1))
    if is_status 0 && prints_line clean; then
        clean=$((clean + 1))
    elif is_status 1 && says "changed faster than it can be checked" && one_line_error && [ ! -s "$out" ]; then
        refused=$((refused + 1))
    else
        break
    fi
done
ok "under writes each look was clean or was given up" test $((clean + refused)) -eq $looks
echo "# $looks looks: $clean clean, $refused given up"
wait $writer
ok "the writer met no error" test ! -s <(grep ashlar: writer.log)
works "at rest again it is clean" ashlar check pool

# Real damage is found beside the server, which goes on.
offset=$(place_of pool "$(address_of pool disk 'o["object"] == "record" and o["index"] == 1000')")
dd if=pool of=kept bs=1 skip="$offset" count=16 status=none
dd if=/dev/zero of=pool bs=1 seek="$offset" count=16 conv=notrunc status=none
run ashlar check pool
ok "damage in a served pool: status 1" is_status 1
ok "it is named" prints "RECORD-DAMAGED: a record does not match its checksum; volume disk bytes 16384000-16400383"
ok "once" prints "damaged: 1 wrong"
dd if=kept of=pool bs=1 seek="$offset" count=16 conv=notrunc status=none
works "export through the server" ashlar export pool disk back
ok "what was written is there" cmp -s -n 100000000 input back
works "stop" ashlar stop pool
works "and after its end the pool is clean" ashlar check pool
finish
