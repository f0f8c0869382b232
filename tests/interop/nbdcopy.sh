#!/bin/bash
# nbdcopy both ways with four connections, sparse and full, short and odd requests; errors of the source end it (fault
# row B67).
# shellcheck disable=SC1091,SC2016,SC2034,SC2154,SC2317
. "$(dirname "$0")/lib.sh"
needs nbdcopy nbdinfo cmp

begin_server 48M disk second
random_file part 5000000
{ cat part; head -c 20000000 /dev/zero; cat part; yes "compressible text" | head -c 9000001; } >image
truncate -s 48M image

works "in, four connections" nbdcopy --connections=4 --requests=64 image "$uri"
works "out, four connections" nbdcopy --connections=4 "$uri" out
ok "the same" cmp image out
works "out again, one connection, one request at a time" nbdcopy --connections=1 --requests=1 "$uri" out
ok "the same" cmp image out
works "from one volume to another" nbdcopy --flush "$uri" "$(uri_of second)"
ok "the same" same_bytes "$(uri_of second)" image
works "in small requests" nbdcopy --request-size=4096 image "$(uri_of second)"
ok "the same" same_bytes "$(uri_of second)" image
works "in the largest requests" nbdcopy --request-size=33554432 image "$(uri_of second)"
ok "the same" same_bytes "$(uri_of second)" image
works "in, without sparse detection" nbdcopy --allocated --sparse=0 image "$(uri_of second)"
ok "the same" same_bytes "$(uri_of second)" image
works "a sparse copy, twice over old data" nbdcopy --sparse=4096 image "$(uri_of second)"
ok "the same" same_bytes "$(uri_of second)" image
works "to nowhere" nbdcopy "$uri" null:
works "synchronous in" nbdcopy --synchronous image "$uri"
works "synchronous out" nbdcopy --synchronous "$uri" out
ok "the same" cmp image out
end_server

if [ "$BACKEND" = memory ]; then
    server_arguments=(--fail-reads 30000000)
    start_server
    works "in" nbdcopy --allocated image "$uri"
    run nbdcopy "$uri" out
    ok "an error of the source is an error of the copy" test "$status" -ne 0
    ok "it says so" says "nput/output error"
    run nbdcopy --synchronous "$uri" out
    ok "also with synchronous requests" test "$status" -ne 0
else
    skip "an error of the source" "errors are injected into the back-end in memory"
fi
finish
