#!/bin/bash
# Helpers of the tests with clients that others wrote, on top of those of tests/cli. Each script runs twice: with
# BACKEND=ashlar against `ashlar serve`, with BACKEND=memory against the same protocol code over plain memory
# ($MEMORY_SERVER), so that a failure shows which of the two it is in.
#
#   needs PROGRAM...            skips the whole script if one is missing
#   begin_server SIZE NAME...   volumes of that size (a number with K, M or G), served on a unix socket; $uri is the first
#   end_server                  ends it in peace; passes as a point
#   uri_of NAME                 the URI of another volume
#   same_bytes URI FILE         condition: the export holds exactly the file
# shellcheck disable=SC1091,SC2034,SC2154
ASHLAR=${ASHLAR:-/bin/false}
. "$(dirname "${BASH_SOURCE[0]}")/../cli/lib.sh"
BACKEND=${BACKEND:-memory}
[ "$BACKEND" = ashlar ] || MEMORY_SERVER=${MEMORY_SERVER:?the server over memory}
socket=$directory/clients
export LIBGUESTFS_BACKEND=direct

needs() {
    local program
    for program in "$@"; do
        if [ "$program" = python3-libnbd ]; then
            [ -n "$python_nbd" ] || skip_all "python3-libnbd is missing"
        elif ! have "$program"; then
            skip_all "$program is missing"
        fi
    done
}

# A Python that has libnbd: the distribution's, though another may stand before it in the path.
python_nbd=
for candidate in python3 /usr/bin/python3; do
    [ -n "$python_nbd" ] || ! "$candidate" -c 'import nbd' 2>/dev/null || python_nbd=$candidate
done

skip_all() {
    echo "1..0 # SKIP $1"
    exit 0
}

uri_of() {
    echo "nbd+unix:///$1?socket=$socket"
}

bytes_in() { # a number with K, M or G
    case $1 in
    *K) echo $((${1%K} << 10)) ;;
    *M) echo $((${1%M} << 20)) ;;
    *G) echo $((${1%G} << 30)) ;;
    *) echo "$1" ;;
    esac
}

# Extra arguments for the server in $server_arguments.
server_arguments=()

start_server() {
    local log=$directory/server.log
    if [ "$BACKEND" = ashlar ]; then
        serve pool --nbd "unix:$socket" "${server_arguments[@]}"
        return
    fi
    rm -f "$directory/.ready"
    mkfifo "$directory/.ready"
    "$MEMORY_SERVER" --unix "$socket" --ready-fd 9 --threads 3 "${server_arguments[@]}" "${memory_exports[@]}" \
        9>"$directory/.ready" >"$log" 2>&1 </dev/null &
    server=$!
    to_be_ended "$server"
    serve_log=$log
    read -r _ <"$directory/.ready"
}

begin_server() {
    local size=$1 name
    shift
    memory_exports=()
    for name in "$@"; do
        memory_exports+=("$name:$(bytes_in "$size")")
    done
    if [ "$BACKEND" = ashlar ]; then
        ashlar create pool --size "${POOL_SIZE:-2G}" >/dev/null || no_server
        for name in "$@"; do
            ashlar create pool "$name" "$size" "${volume_arguments[@]}" >/dev/null || no_server
        done
    fi
    uri=$(uri_of "$1")
    start_server || no_server
}
volume_arguments=()

no_server() {
    echo "Bail out! no server"
    exit 1
}

end_server() {
    kill -TERM "$server"
    ended "$server"
    ok "the server ends in peace" is_status 0
    if [ "$BACKEND" = ashlar ]; then
        run ashlar check pool
        ok "the pool is whole" is_status 0
    fi
    sed 's/^/# /' "$serve_log"
}

same_bytes() {
    nbdcopy "$1" - | cmp - "$2"
}
