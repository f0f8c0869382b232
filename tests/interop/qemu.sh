#!/bin/bash
# qemu-img and qemu-io: convert, compare, map, bench; unaligned requests, zeroes with and without unmap, FUA, discard.
# shellcheck disable=SC1091,SC2016,SC2034,SC2154,SC2317
. "$(dirname "$0")/lib.sh"
needs qemu-img qemu-io cmp

begin_server 32M disk second
random_file part 3000000
{ cat part; head -c 10000000 /dev/zero; cat part; } >image
truncate -s 32M image

works "info" qemu-img info --output=json "$uri"
ok "the size" json_is 'j["virtual-size"]' $((32 << 20))
works "convert in" qemu-img convert -n -f raw -O raw -W -m 8 image "$uri"
works "compare" qemu-img compare -f raw -F raw image "$uri"
works "convert out" qemu-img convert -f raw -O raw "$uri" out
ok "the same" cmp image out
works "convert from one volume to another" qemu-img convert -n -f raw -O raw "$uri" "$(uri_of second)"
works "compare both" qemu-img compare -f raw -F raw "$uri" "$(uri_of second)"
works "convert to qcow2 and back" qemu-img convert -f raw -O qcow2 "$uri" copy.qcow2
works "and back" qemu-img convert -n -f qcow2 -O raw --target-is-zero copy.qcow2 "$(uri_of second)"
works "compare" qemu-img compare -f raw -F raw image "$(uri_of second)"
works "map" qemu-img map --output=json -f raw "$uri"
ok "data at the beginning, a hole in the middle" json_is \
    'j[0]["data"] and any(not e["data"] and e["zero"] and 3000000 <= e["start"] < 13000000 for e in j)' True
ok "gapless" json_is 'sum(e["length"] for e in j)' $((32 << 20))
for options in "-c 500" "-c 500 -w" "-c 500 -w -d 8 --flush-interval=16" "-c 500 -d 1 -s 512" "-c 500 -d 64 -s 4096 -w" \
    "-c 28 -d 8 -s 1M -S 1M -w"; do
    # shellcheck disable=SC2086
    works "bench $options" qemu-img bench -f raw -o 4096 $options "$(uri_of second)"
done

io() { # COMMAND...: one after the other in one process, stopping at nothing
    local arguments=() command
    for command in "$@"; do
        arguments+=(-c "$command")
    done
    qemu-io -f raw "${arguments[@]}" "$uri"
}
io_is_right() { # NAME COMMAND...: works, and no pattern fails to verify
    local name=$1
    shift
    run io "$@"
    ok "$name" clean_io
}
clean_io() {
    is_status 0 && ! grep -qiE "failed|error" "$out" "$err"
}

io_is_right "unaligned writes" "write -P 1 1 511" "write -P 2 4095 2" "write -P 3 100001 777777" \
    "read -P 1 1 511" "read -P 2 4095 2" "read -P 3 100001 777777"
io_is_right "zeroes" "write -P 5 1M 1M" "write -z 1100000 100001" "read -P 0 1100000 100001" "read -P 5 1M 51424" \
    "read -P 5 1200001 897151"
io_is_right "zeroes with unmap" "write -P 6 2M 2M" "write -z -u 2M 1M" "read -P 0 2M 1M" "read -P 6 3M 1M"
io_is_right "zeroes that must not unmap, and then are written" "write -z 4M 1M" "write -P 7 4M 1M" "read -P 7 4M 1M"
io_is_right "zeroes, only if fast" "write -P 1 5M 64k" "write -z -n 5M 64k" "read -P 0 5M 64k"
io_is_right "FUA" "write -f -P 8 6M 64k" "write -f -z 6400k 64k" "write -f -u -z 6500k 64k" "read -P 8 6M 64k"
io_is_right "discard" "write -P 9 8M 1M" "discard 8M 512k" "read -P 0 8M 512k" "read -P 9 8704k 512k"
io_is_right "discard of odd bounds" "write -P 9 9M 1M" "discard 9437185 99999" "flush" "read -P 9 9537184 511392"
io_is_right "asynchronous requests" "aio_write -P 10 10M 1M" "aio_write -P 11 11M 1M" "aio_write -z 12M 1M" \
    "aio_read 1M 4M" "aio_flush" "read -P 10 10M 1M" "read -P 11 11M 1M" "read -P 0 12M 1M"
io_is_right "flush" "flush"
io_is_right "vectors" "writev -P 12 13M 512 1024 3072" "readv -P 12 13M 4096 512"
run io "write -P 1 32M 512"
ok "beyond the end is an error" grep -qiE "failed|error|out of range|no space" "$out" "$err"
io_is_right "and harms nothing" "read -P 10 10M 1M"
end_server
finish
