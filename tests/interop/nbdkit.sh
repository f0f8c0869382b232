#!/bin/bash
# nbdkit as source, judge and client: sparse-random there and back, checkwrite, its nbd plug-in in between, retries over
# a server that is killed (fault rows B7, B59).
# shellcheck disable=SC1091,SC2016,SC2034,SC2154,SC2317
. "$(dirname "$0")/lib.sh"
needs nbdkit nbdcopy cmp

begin_server 64M disk second
export uri
second=$(uri_of second)
export second

# sparse-random makes the same data for the same seed and, written to, checks that they are the same.
run nbdkit -U - sparse-random size=64M seed=7 percent=20 runlength=100000 --run 'nbdcopy "$uri" "'"$uri"'" && nbdcopy "'"$uri"'" "$uri"'
ok "sparse-random there and back" is_status 0
run nbdkit -U - sparse-random size=64M seed=8 percent=50 runlength=4096 --run 'nbdcopy --connections=4 "$uri" "'"$uri"'" && nbdcopy --connections=4 "'"$uri"'" "$uri"'
ok "again with short runs, over the first" is_status 0
run nbdkit -U - sparse-random size=64M seed=9 percent=50 runlength=4096 --run 'nbdcopy "'"$uri"'" "$uri"'
ok "a copy that differs is told (so the above can fail)" test "$status" -ne 0

nbdcopy "$uri" image
run nbdkit -U - --filter=checkwrite file image --run 'nbdcopy "'"$uri"'" "$uri"'
ok "checkwrite agrees" is_status 0

# nbdkit's nbd plug-in is the client, and another client stands behind it.
through() { # NAME FILTER-AND-PARAMETER...
    local name=$1 arguments=()
    shift
    [ $# -eq 0 ] || arguments=("--filter=$1" "${@:2}")
    run nbdkit -U - nbd uri="$second" "${arguments[@]}" --run 'nbdcopy image "$uri" && nbdcopy "$uri" - | cmp - image'
    ok "$name" is_status 0
}
through "through nbdkit"
through "without extents" noextents
through "in blocks of 4 KiB" blocksize minblock=4096 maxdata=65536
through "with FUA on every write" fua fuamode=force
through "without zeroes" nozero
run nbdkit -U - nbd uri="$second" shared=true --run 'nbdcopy --connections=4 image "$uri" && nbdcopy --connections=4 "$uri" - | cmp - image'
ok "through nbdkit with a shared connection" is_status 0
end_server

# A client that tries again does not notice that the server was killed, many times, in the middle of a copy.
restart() {
    kill -KILL "$server"
    wait "$server" 2>/dev/null
    start_server
}
if [ "$BACKEND" = ashlar ]; then
    start_server
    nbdkit -f -U "$directory/retry" --filter=retry nbd uri="$uri" retries=20 retry-delay=1 retry-exponential=no &
    retry=$!
    to_be_ended "$retry"
    eventually test -S "$directory/retry"
    run nbdcopy --flush image "nbd+unix:///?socket=$directory/retry" &
    copy=$!
    for _ in 1 2 3; do
        sleep 0.2
        restart
    done
    wait "$copy"
    works "the copy goes on over three kills" nbdcopy --flush image "nbd+unix:///?socket=$directory/retry"
    ok "and is right" same_bytes "$uri" image
    kill "$retry"
    end_server
else
    skip "the copy goes on over three kills" "what is in memory does not outlive the server"
fi
finish
