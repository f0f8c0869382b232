#!/bin/bash
# nbdinfo: what is negotiated, listed, and mapped.
# shellcheck disable=SC1091,SC2154
. "$(dirname "$0")/lib.sh"
needs nbdinfo nbdcopy

begin_server 64M disk other
works "--json" nbdinfo --json "$uri"
ok "structured replies were negotiated" json_is 'j["structured"]' True
ok "the protocol" json_is 'j["protocol"]' newstyle-fixed
e='j["exports"][0]'
ok "the name" json_is "$e"'["export-name"]' disk
ok "a description" json_is 'len('"$e"'["description"]) > 0' True
ok "the size" json_is "$e"'["export-size"]' $((64 << 20))
ok "not read-only, not rotational" json_is "$e"'["is_read_only"] or '"$e"'["is_rotational"]' False
for can in flush fua trim zero fast_zero cache df multi_conn; do
    ok "can $can" json_is "$e"'["can_'$can'"]' True
done
ok "the metadata context" json_is "$e"'["contexts"]' "['base:allocation']"
ok "the smallest block" json_is "$e"'["block_size_minimum"]' 1
ok "the preferred block is a power of two" json_is "$e"'["block_size_preferred"] in (4096, 8192, 16384, 65536, 131072)' True
ok "the largest request" json_is "$e"'["block_size_maximum"]' $((32 << 20))

works "--list" nbdinfo --list --json "nbd+unix:///?socket=$socket"
ok "every volume is listed" json_is '[e["export-name"] for e in j["exports"]]' "['disk', 'other']"
works "--size" nbdinfo --size "$(uri_of other)"
ok "is the size" prints_line $((64 << 20))
works "--can connect" nbdinfo --can connect "$uri"
works "--can fua" nbdinfo --can fua "$uri"
run nbdinfo --is read-only "$uri"
ok "--is read-only" is_status 2
run nbdinfo "$(uri_of none)"
ok "a volume that is not there is refused" is_status 1
ok "by name" says none
run nbdinfo "nbd+unix:///?socket=$socket"
ok "so is the empty name where there are two" is_status 1

works "--map of an empty volume" nbdinfo --map --json "$uri"
ok "is one hole" json_is '[(e["offset"], e["length"], e["type"]) for e in j]' "[(0, $((64 << 20)), 3)]"
random_file data 1000000
{ cat data; head -c 3000000 /dev/zero; cat data; } >image
works "a copy" nbdcopy --destination-is-zero --flush image "$uri"
works "--map of data, hole, data, hole" nbdinfo --map --json "$uri"
ok "begins with data and ends with a hole" json_is '(j[0]["type"], j[-1]["type"])' "(0, 3)"
ok "is gapless" json_is 'sum(e["length"] for e in j)' $((64 << 20))
ok "the hole in the middle is seen" json_is 'any(e["type"] == 3 and 1000000 <= e["offset"] < 4000000 for e in j[:-1])' True
ok "no data is called a hole" json_is 'any(e["type"] & 1 and (e["offset"] < 1000000 or 4000000 <= e["offset"] < 5000000) for e in j)' False
works "--map --totals" nbdinfo --map --totals "$uri"
end_server
finish
