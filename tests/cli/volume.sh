#!/bin/bash
# The verbs on volumes, on a pool that nobody serves and then, word for word the same, on one that is served: the user
# never needs to know.
# shellcheck disable=SC1091,SC2154,SC2317  # lib.sh is beside this file and sets what is used here
. "$(dirname "$0")/lib.sh"

all_verbs() { # POOL
    local pool=$1
    works "$pool: an empty list" ashlar list "$pool"
    ok "$pool: says what to do next" prints "no volumes; make one: ashlar create $pool NAME 10G"
    works "$pool: create" ashlar create "$pool" b 1G -o compression=lz4
    works "$pool: create another" ashlar create "$pool" a 2G
    fails "$pool: create it again" 1 "a" ashlar create "$pool" a 2G
    run ashlar list "$pool"
    ok "$pool: list is in order of names" test "$(awk 'NR > 1 { printf "%s ", $1 }' "$out")" = "a b "
    ok "$pool: list has a heading" prints "NAME"
    run ashlar list "$pool" --json
    ok "$pool: list --json" json_is '[v["name"] for v in j["volumes"]]' "['a', 'b']"
    ok "$pool: with sizes in bytes" json_is 'j["volumes"][0]["size"]' $((2 * 1024 * 1024 * 1024))

    run ashlar get "$pool" b compression
    ok "$pool: get of one property is its value" test "$(cat "$out")" = lz4
    run ashlar get "$pool" b size used
    ok "$pool: get of two is two lines" test "$(wc -l <"$out")" -eq 2
    run ashlar get "$pool" b
    ok "$pool: get of all" prints "logical-referenced"
    run ashlar get "$pool" b size used --json
    ok "$pool: get --json has what was asked for" json_is 'list(j["properties"])' "['size', 'used']"
    run ashlar get "$pool"
    ok "$pool: get of the pool" prints "segment-size"
    run ashlar get "$pool" . volumes
    ok "$pool: get of one property of the pool" prints_line 2
    fails "$pool: get of a volume that is not there" 1 "no volume" ashlar get "$pool" c

    works "$pool: set" ashlar set "$pool" b compression=zstd-7
    ok "$pool: says what it is now" prints_line "compression zstd-7"
    run ashlar get "$pool" b compression
    ok "$pool: and it is" prints_line zstd-7
    works "$pool: set of two properties" ashlar set "$pool" b compression=off size=3G
    run ashlar get "$pool" b size
    ok "$pool: the size too" prints_line 3G
    fails "$pool: set of a smaller size" 1 "--force" ashlar set "$pool" b size=2G
    fails "$pool: set on a volume that is not there" 1 "no volume" ashlar set "$pool" c compression=off

    works "$pool: resize" ashlar resize "$pool" b 4G
    ok "$pool: says from where" prints_line "b: from 3G to 4G"
    fails "$pool: resize to less" 1 "shrinking from 4G to 1G loses what lies behind; --force" ashlar resize "$pool" b 1G
    run ashlar get "$pool" b size
    ok "$pool: it was not" prints_line 4G
    works "$pool: resize to less with --force" ashlar resize "$pool" b 1G --force
    run ashlar resize "$pool" b 2G --json
    ok "$pool: resize --json" json_is '(j["before"], j["size"])' "(1073741824, 2147483648)"
    fails "$pool: resize of a volume that is not there" 1 "no volume" ashlar resize "$pool" c 1G

    run ashlar get "$pool" b guid
    guid=$(cat "$out")
    works "$pool: rename" ashlar rename "$pool" b c
    ok "$pool: says the new name" prints_line "b is now called c"
    run ashlar get "$pool" c guid
    ok "$pool: it is the same volume" test "$(cat "$out")" = "$guid"
    fails "$pool: rename to a name that is taken" 1 "a" ashlar rename "$pool" c a
    fails "$pool: rename to a bad name" 2 "name" ashlar rename "$pool" c a/b
    fails "$pool: rename of a volume that is not there" 1 "no volume" ashlar rename "$pool" b d

    works "$pool: status" ashlar status "$pool"
    ok "$pool: status tells room and contents apart" grep -qE '^space        [0-9.]+[KMG] free for new data, of [0-9.]+[KMG]; ' "$out"
    ok "$pool: and what lies there" grep -qE '^stored       [0-9.]+[KMG]? live, [0-9.]+[KMG]? dead in segments with it, ' "$out"
    ok "$pool: the state is good" prints "state        good"
    run ashlar status "$pool" --json
    ok "$pool: used and free divide what is usable" json_is 'j["used"] + j["free"] == j["usable"]' True
    ok "$pool: status --json" json_is 'j["state"], len(j["volumes"])' "('good', 2)"

    works "$pool: destroy" ashlar destroy "$pool" c
    fails "$pool: destroy of what is gone" 1 "no volume" ashlar destroy "$pool" c
    run ashlar destroy "$pool" a --json
    ok "$pool: destroy --json" json_is 'j["volume"]' a
    run ashlar list "$pool" --json
    ok "$pool: all are gone" json_is 'j["volumes"]' "[]"
}

ashlar create alone --size 256M >/dev/null
ashlar create served --size 256M >/dev/null
all_verbs alone
ok "a server" serve served
all_verbs served
# The live bytes of a pool and the account of its volume say the same.
ashlar create tight --size 96M >/dev/null
random_file input 40000000
ashlar import tight a input >/dev/null
run ashlar status tight --json
ok "live is what was stored and its map" json_is '40000000 <= j["live"] < 41000000' True
ok "it is what the volume uses, and the pool's own" json_is \
    "0 <= j['live'] - $("$ASHLAR" get tight a used --json | python3 -c 'import json, sys; print(json.load(sys.stdin)["properties"]["used"])') < 100000" True
ashlar destroy tight a >/dev/null
run ashlar status tight --json
ok "destroyed: nothing of it is live" json_is 'j["live"] < 100000' True

works "status of a served pool names the process" ashlar status served
ok "by its number" prints "server       process $server"
works "stop" ashlar stop served
run ashlar list served --json
ok "what was done over the server is there" json_is 'j["volumes"]' "[]"

# Two commands at once wait for each other instead of failing.
for name in p q r s; do
    ashlar create alone "$name" 1G >"$directory/$name.out" 2>&1 &
done
wait
run ashlar list alone --json
ok "four commands at once all succeed" json_is 'len(j["volumes"])' 4
finish
