#!/bin/bash
# The server is killed under writes of four connections, again and again: whatever was flushed, or written with FUA, is
# there afterwards, and every sector is a value that was written at or after that (fault rows A374, A3577, B1, B17, B59).
# shellcheck disable=SC1091,SC2034,SC2154
. "$(dirname "$0")/lib.sh"
needs python3-libnbd
[ "$BACKEND" = ashlar ] || skip_all "what is in memory does not outlive the server"

cat >writer.py <<'PYTHON'
"""writer.py URI REGION SEED STATE: writes to one region until the server goes away; leaves in the file STATE, per block
of 4 KiB, the generation that must be there at least and the last one that was sent. STATE.begun is there once this run had
30 writes acknowledged, and made some of them durable."""
import json, os, random, sys, nbd
uri, region, seed, state = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
BLOCK, BLOCKS = 4096, 1024
rng = random.Random(seed)
known = json.load(open(state)) if os.path.exists(state) else {"durable": [0] * BLOCKS, "sent": [0] * BLOCKS, "next": 1}
durable, sent = known["durable"], known["sent"]
acknowledged = list(durable)
generation = known["next"]
base = region * BLOCK * BLOCKS

def content(block, number):
    if number == 0:
        return bytes(BLOCK)
    half = random.Random(block * 1000003 + number).randbytes(BLOCK // 2 - 8)
    return (number.to_bytes(8, "big") + half) * 2

def check(h):
    for block in range(BLOCKS):
        got = h.pread(BLOCK, base + block * BLOCK)
        number = int.from_bytes(got[:8], "big")
        if not durable[block] <= number <= sent[block] or got != content(block, number):
            print(f"block {block}: generation {number}, {durable[block]} was durable, {sent[block]} sent", file=sys.stderr)
            sys.exit(1)
        acknowledged[block] = durable[block] = sent[block] = number

h = nbd.NBD()
h.connect_uri(uri)
check(h)
durable_before, begun = list(durable), False
if len(sys.argv) > 5:
    sys.exit(0)
try:
    while True:
        first = rng.randrange(BLOCKS)
        count = min(rng.choice((1, 1, 1, 4, 16, 64)), BLOCKS - first)
        fua = rng.random() < 0.3
        data = b"".join(content(b, generation) for b in range(first, first + count))
        for block in range(first, first + count):
            sent[block] = generation
        h.pwrite(data, base + first * BLOCK, flags=nbd.CMD_FLAG_FUA if fua else 0)
        for block in range(first, first + count):
            acknowledged[block] = generation
            if fua:
                durable[block] = generation
        generation += 1
        if rng.random() < 0.1:
            before = list(acknowledged)
            h.flush()
            durable = before
        if not begun and generation - known["next"] >= 30 and durable != durable_before:
            open(state + ".begun", "w").close()
            begun = True
except nbd.Error:
    pass
json.dump({"durable": durable, "sent": sent, "next": generation}, open(state, "w"))
PYTHON

all_begun() {
    [ -e state.0.begun ] && [ -e state.1.begun ] && [ -e state.2.begun ] && [ -e state.3.begun ]
}

volume_arguments=(-o record-size=16K)
begin_server 16M disk
for round in 1 2 3 4 5 6; do
    writers=()
    rm -f state.?.begun
    for region in 0 1 2 3; do
        "$python_nbd" writer.py "$uri" $region $((round * 4 + region)) "state.$region" 2>"problems.$region" &
        writers+=($!)
    done
    eventually all_begun
    ok "round $round: all four write" all_begun
    sleep "0.$((round * 13 % 10))" # at another moment each round
    kill -KILL "$server"
    wait "$server" 2>/dev/null
    failed=0
    for writer in "${writers[@]}"; do
        wait "$writer" || failed=1
    done
    ok "round $round: nothing that was durable before is missing" test "$failed" -eq 0
    [ "$failed" -eq 0 ] || sed 's/^/# /' problems.*
    run ashlar check pool
    ok "round $round: the pool is whole after the kill" is_status 0
    start_server
done
failed=0
for region in 0 1 2 3; do
    "$python_nbd" writer.py "$uri" $region 0 "state.$region" only-check || failed=1
done
ok "at the end, too" test "$failed" -eq 0
end_server
finish
