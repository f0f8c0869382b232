/*
 * The table of well-formed byte sequences of the Unicode standard (3.9, table 3-7): what differs between lead bytes is
 * how many bytes follow and in which range the first of them must lie; the others are 80..BF.
 */
#include "front/nbd/utf8.h"

/* Bytes after the lead byte, -1 for none that may lead. */
static int continuation(uint8_t lead, uint8_t *ret_low, uint8_t *ret_high)
{
    *ret_low = lead == 0xe0 ? 0xa0 : lead == 0xf0 ? 0x90 : 0x80;
    *ret_high = lead == 0xed ? 0x9f : lead == 0xf4 ? 0x8f : 0xbf;
    if (lead < 0x80)
        return 0;
    if (lead >= 0xc2 && lead <= 0xdf)
        return 1;
    if (lead >= 0xe0 && lead <= 0xef)
        return 2;
    if (lead >= 0xf0 && lead <= 0xf4)
        return 3;
    return -1;
}

bool utf8_valid(const uint8_t *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint8_t low, high;
        int more = continuation(bytes[i], &low, &high);
        if (more < 0 || (size_t)more >= n - i)
            return false;
        for (; more > 0; more--) {
            uint8_t byte = bytes[++i];
            if (byte < low || byte > high)
                return false;
            low = 0x80;
            high = 0xbf;
        }
    }
    return true;
}
