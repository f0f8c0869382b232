#!/bin/bash
# Pools that are not what they should be: each is one line that says what is wrong and what to do, from every verb, and
# nothing is changed.
# shellcheck disable=SC1091,SC2154,SC2317  # lib.sh is beside this file and sets what is used here
. "$(dirname "$0")/lib.sh"

every_verb() { # NAME POOL TEXT
    local name=$1 pool=$2 text=$3
    fails "$name: list" 1 "$text" ashlar list "$pool"
    fails "$name: status" 1 "$text" ashlar status "$pool"
    fails "$name: create" 1 "$text" ashlar create "$pool" v 1G
    fails "$name: serve" 1 "$text" ashlar serve "$pool"
    fails "$name: import" 1 "$text" ashlar import "$pool" v "$ASHLAR"
    fails "$name: export" 1 "$text" ashlar export "$pool" v output
    ok "$name: export leaves no file" test ! -e output
}

every_verb "missing file" nothing "there is no pool at 'nothing'; make one: ashlar create nothing --size 10G"
mkdir directory
every_verb "a directory" directory "directory"

random_file noise 70000000
sum=$(sha256sum <noise)
every_verb "no pool" noise "noise: not an Ashlar pool"
ok "no pool: it was not changed" test "$(sha256sum <noise)" = "$sum"
truncate -s 100M zeroes
every_verb "zeroes" zeroes "zeroes: not an Ashlar pool"
: >empty
every_verb "an empty file" empty "empty"
echo "short" >short
every_verb "a short file" short "short"

ashlar create pool --size 256M >/dev/null
ashlar create pool disk 64M >/dev/null
random_file input 20000000
ashlar import pool data input >/dev/null
cp --sparse=always pool truncated
truncate -s 128M truncated
sum=$(sha256sum <truncated)
every_verb "a truncated pool" truncated "truncated"
ok "a truncated pool: it was not changed" test "$(sha256sum <truncated)" = "$sum"

cp --sparse=always pool newer
"$POKE" newer version
sum=$(sha256sum <newer)
every_verb "a newer format version" newer "newer"
ok "a newer format version: it was not changed" test "$(sha256sum <newer)" = "$sum"
cp --sparse=always pool feature
"$POKE" feature feature
every_verb "an unknown feature" feature "feature"

if [ "$(id -u)" -eq 0 ]; then
    as_nobody test -r "$ASHLAR" || skip "no permission" "the program is where only root can read it"
fi
if as_nobody test -r "$ASHLAR"; then
    cp --sparse=always pool private
    chmod 600 private
    if [ "$(id -u)" -eq 0 ]; then
        fails "no permission: list" 1 "no permission to read" as_nobody "$ASHLAR" list private
        fails "no permission: create" 1 "no permission to read and write" as_nobody "$ASHLAR" create private v 1G
        fails "no permission: serve" 1 "no permission to read and write" as_nobody "$ASHLAR" serve private
        chmod 644 private
        works "may read: list" as_nobody "$ASHLAR" list private
        fails "may read: create" 1 "no permission to read and write" as_nobody "$ASHLAR" create private v 1G
        fails "no permission to make a file" 1 "no permission to create" as_nobody "$ASHLAR" create ./newpool --size 256M
    else
        chmod 400 private
        fails "may read: create" 1 "no permission to read and write" ashlar create private v 1G
    fi
fi

# A full pool refuses, and goes on with what makes room.
ashlar create full --size 96M >/dev/null
random_file much 100000000
fails "a full pool: import" 1 "the pool is full" ashlar import full big much
random_file some 30000000
works "a full pool takes what fits" ashlar import full some some
works "and gives it back" ashlar export full some back
ok "the same" cmp -n 30000000 some back
works "and destroys" ashlar destroy full some

works "the good pool is still good" ashlar status pool
works "with its data" ashlar export pool data back2
ok "the same" cmp -n 20000000 input back2
finish
