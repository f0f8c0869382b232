#!/bin/bash
# fio's nbd engine: verified random reads and writes with trims and flushes, four connections; sizes from 512 bytes up.
# shellcheck disable=SC1091,SC2154
. "$(dirname "$0")/lib.sh"
needs fio
fio --enghelp=nbd >/dev/null 2>&1 || skip_all "fio is built without its nbd engine"

begin_server 128M disk
job() { # NAME OPTIONS...
    local name=$1
    shift
    run fio --output-format=json --ioengine=nbd --uri="$uri" --group_reporting --exitall_on_error --verify_fatal=1 \
        --do_verify=1 --randrepeat=1 --thread --name=job "$@"
    ok "$name" is_status 0
}
regions=(--numjobs=4 --size=16M --offset_increment=16M)
job "verified random writes of 4 KiB, four jobs" "${regions[@]}" --rw=randwrite --bs=4k --iodepth=16 --verify=crc32c
job "mixed reads and writes, with fsync" "${regions[@]}" --rw=randrw --rwmixread=30 --bsrange=512-64k --bs_unaligned=0 \
    --blockalign=512 --iodepth=16 --verify=crc32c --fsync=32
# Where fio's requests overlap (a block is trimmed, then written; odd blocks anywhere) it may not have both under way at
# once, or what it finds is not what it expects.
job "trims among them" "${regions[@]}" --rw=randtrimwrite --bs=16k --iodepth=16 --fsync=64 --verify=crc32c \
    --serialize_overlap=1
job "long writes" "${regions[@]}" --rw=write --bs=4M --iodepth=4 --verify=crc32c
job "long and odd writes" --rw=randwrite --bs=777777 --blockalign=1 --bs_unaligned=1 --size=32M --iodepth=8 \
    --verify=crc32c --serialize_overlap=1
# Fault row B4: many connections to one volume.
job "sixteen connections" --numjobs=16 --size=4M --offset_increment=4M --rw=randrw --rwmixread=30 --bsrange=4k-64k \
    --iodepth=8 --verify=crc32c --fsync=64
job "depth 256" --rw=randwrite --bs=4k --size=16M --iodepth=256 --verify=crc32c
end_server
finish
