#!/bin/bash
# How much memory a server takes at the most: 512 MiB written at random to a volume of 1 TiB, sixteen requests at a time,
# with a small cache. The bound is the cache, 64 MiB, and 0.3 % of the data (row S19 of doc/performance.md, which is
# measured with 10 GiB by bench/run).
# shellcheck disable=SC1091,SC2034,SC2154
. "$(dirname "$0")/lib.sh"
needs python3-libnbd

cache_mib=32
data_mib=512
export SEED=${ASHLAR_SEED:-$RANDOM} DATA_MIB=$data_mib URI
echo "# ASHLAR_SEED=$SEED"
server_arguments=(--cache "${cache_mib}M")
POOL_SIZE=4G
begin_server 1T disk
URI=$uri

cat >writer.py <<'PYTHON'
import nbd, os, random
PIECE, DEPTH = 16384, 16
rng = random.Random(int(os.environ["SEED"]))
# Records that shrink to about half: noise and a repeated line.
noise = [rng.randbytes(PIECE // 2) + b"a line of text that repeats\n" * (PIECE // 56 + 1) for _ in range(64)]
h = nbd.NBD()
h.connect_uri(os.environ["URI"])
places, under_way, failed = h.get_size() // PIECE, 0, 0
def done(error):
    global under_way, failed
    under_way -= 1
    failed += error.value != 0
    return 1
for i in range((int(os.environ["DATA_MIB"]) << 20) // PIECE):
    while under_way == DEPTH:
        h.poll(-1)
    under_way += 1
    h.aio_pwrite(nbd.Buffer.from_bytearray(bytearray(noise[i % 64][:PIECE])), rng.randrange(places) * PIECE, done)
while under_way > 0:
    h.poll(-1)
h.flush()
assert failed == 0
PYTHON
works "512 MiB at random" "$python_nbd" writer.py

peak_kib=$(sed -n 's/^VmHWM:[^0-9]*\([0-9]*\).*/\1/p' "/proc/$server/status")
bound_kib=$(((cache_mib + 64) * 1024 + data_mib * 1024 * 3 / 1000))
echo "# peak $peak_kib KiB, bound $bound_kib KiB"
run ashlar status pool --json
ok "the cache was full, so that the bound means something" test "$(json 'j["cache"]["used"] * 10 > j["cache"]["size"] * 8')" = True
ok "peak memory within the bound" test "$peak_kib" -le "$bound_kib"
end_server
finish
