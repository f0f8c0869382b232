#!/bin/bash
# The program itself under memcheck, from an empty pool to a checked one: volumes are made, filled, read and trimmed by NBD
# clients, asked about over the control socket, the server is killed and replays, and ends in peace. Memcheck sees what
# sanitizers cannot: the optimised code, and memory that nobody wrote. Faults and leaks of any of these runs fail the test.
# shellcheck disable=SC1091,SC2034,SC2154
BACKEND=ashlar
. "$(dirname "$0")/../interop/lib.sh"
needs valgrind nbdcopy cmp

cat >"$directory/memcheck" <<END
#!/bin/sh
exec valgrind -q --error-exitcode=99 --leak-check=full --fair-sched=yes --log-file='$directory/report.%p' "\$@"
END
chmod +x "$directory/memcheck"
cat >"$directory/ashlar-checked" <<END
#!/bin/sh
exec '$directory/memcheck' '$ASHLAR' "\$@"
END
chmod +x "$directory/ashlar-checked"

run "$directory/memcheck" "$FAULT"
ok "a decision by memory that nobody wrote is caught" is_status 99
ok "it is reported" grep -q uninitialised "$directory"/report.*
rm -f "$directory"/report.*
ASHLAR=$directory/ashlar-checked

# Half of it compresses, a part is zeroes; small enough that memcheck, which is slow, takes seconds.
random_file image 3000000
{ yes "compressible text" | head -c 3000000; head -c 1000000 /dev/zero; seq 300000; } >>image
truncate -s 16M image

POOL_SIZE=256M
begin_server 16M disk second
works "in" nbdcopy --flush image "$uri"
works "out" nbdcopy "$uri" out
ok "the same" cmp image out
works "a volume is made while it is served" ashlar create pool third 1M -o compression=lz4
works "another is renamed" ashlar rename pool third fourth
works "it is listed" ashlar list pool
ok "under its new name" prints fourth
works "status" ashlar status pool
works "in small pieces, without sparse detection, to a second volume" \
    nbdcopy --flush --allocated --sparse=0 --request-size=16384 out "$(uri_of second)"
kill -KILL "$server"
ended "$server"
ok "the server was killed" is_status 137

ok "a second server replays" start_server
ok "the first volume is the same" same_bytes "$uri" image
ok "the second too" same_bytes "$(uri_of second)" image
truncate -s 16M empty
works "zeroes over all of it" nbdcopy --flush empty "$uri"
ok "it reads as zeroes" same_bytes "$uri" empty
works "a volume is destroyed while it is served" ashlar destroy pool fourth
end_server

reports=$(cat "$directory"/report.* 2>/dev/null)
ok "there were reports to look into" test -e "$(compgen -G "$directory/report.*" | head -n 1)"
ok "no fault and no leak in any of these runs" test -z "$reports"
[ -z "$reports" ] || cat "$directory"/report.* | sed 's/^/# /' | head -200
finish
