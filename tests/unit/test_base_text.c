/*
 * Sizes in and out, growable strings, UUIDs.
 */
#include <errno.h>
#include <limits.h>
#include <string.h>

#include "base/error.h"
#include "base/math.h"
#include "base/prng.h"
#include "base/text.h"
#include "seed.h"
#include "tap.h"

static void expect_size(const char *string, uint64_t bytes)
{
    struct error err = {0};
    uint64_t got = ~bytes;
    EXPECT_EQ(size_parse(string, "--size", &got, &err), 0);
    EXPECT_EQ(got, (int64_t)bytes);
    EXPECT_EQ(err.code, 0);
}

/* Refused with that code, one line that names the option and the value and has `hint` in it; no size is written. */
static void expect_refused(const char *string, int code, const char *hint)
{
    struct error err = {0};
    uint64_t got = 4711;
    int rc = size_parse(string, "--size", &got, &err);
    bool fine = rc == code && err.code == code && got == 4711 && strncmp(err.text, "--size: ", 8) == 0 &&
                strstr(err.text, hint) != NULL && strstr(err.text, string) != NULL && strchr(err.text, '\n') == NULL;
    if (!fine)
        printf("# '%s': %d, \"%s\"\n", string, rc, err.text);
    EXPECT(fine);
    EXPECT_EQ(size_parse(string, "--size", &got, NULL), code);
}

static void test_size_parse_good(void)
{
    expect_size("0", 0);
    expect_size("1", 1);
    expect_size("4096", 4096);
    expect_size("007", 7);
    expect_size("16K", 16 * KIB);
    expect_size("10M", 10 * MIB);
    expect_size("10G", 10 * GIB);
    expect_size("2T", 2 * TIB);
    expect_size("3P", 3 * 1024 * TIB);
    expect_size("10g", 10 * GIB);
    expect_size("1KiB", KIB);
    expect_size("1MiB", MIB);
    expect_size("1GiB", GIB);
    expect_size("1TiB", TIB);
    expect_size("1PiB", 1024 * TIB);
    expect_size("1kib", KIB);
    expect_size("9223372036854775807", INT64_MAX);
    expect_size("8191P", UINT64_C(8191) * 1024 * TIB);
    expect_size("9007199254740991K", UINT64_C(9007199254740991) * 1024);
    expect_size("000000000000000000000000000000000001K", 1024);
}

static void test_size_parse_refused(void)
{
    expect_refused("", -EINVAL, "empty");
    expect_refused("-1", -EINVAL, "sign");
    expect_refused("+1", -EINVAL, "sign");
    expect_refused("-", -EINVAL, "sign");
    expect_refused("3.7X", -EINVAL, "fraction");
    expect_refused("1.5G", -EINVAL, "1536M");
    expect_refused("1,5G", -EINVAL, "fraction");
    expect_refused(".5G", -EINVAL, "digits");
    expect_refused("10KB", -EINVAL, "K is 1024");
    expect_refused("10KB", -EINVAL, "write 10K");
    expect_refused("10kb", -EINVAL, "write 10K");
    expect_refused("10PB", -EINVAL, "write 10P");
    expect_refused("K", -EINVAL, "digits");
    expect_refused("KiB", -EINVAL, "digits");
    expect_refused("10B", -EINVAL, "suffix");
    expect_refused("10iB", -EINVAL, "suffix");
    expect_refused("10 K", -EINVAL, "suffix");
    expect_refused("10 ", -EINVAL, "suffix");
    expect_refused(" 10", -EINVAL, "digits");
    expect_refused("10KK", -EINVAL, "suffix");
    expect_refused("10KiBx", -EINVAL, "suffix");
    expect_refused("10Ki", -EINVAL, "suffix");
    expect_refused("10E", -EINVAL, "suffix");
    expect_refused("0x10", -EINVAL, "suffix");
    expect_refused("1e9", -EINVAL, "suffix");
    expect_refused("ten", -EINVAL, "digits");
    expect_refused("99999999999999999999999X", -EINVAL, "suffix"); /* malformed goes before too large */
}

static void test_size_parse_overflow(void)
{
    expect_refused("18446744073709551616", -ERANGE, "2^63"); /* 2^64 */
    expect_refused("18446744073709551615", -ERANGE, "2^63");
    expect_refused("9223372036854775808", -ERANGE, "2^63");
    expect_refused("8192P", -ERANGE, "2^63");
    expect_refused("16384P", -ERANGE, "2^63");
    expect_refused("16385P", -ERANGE, "2^63"); /* wraps to 1P */
    expect_refused("9007199254740992K", -ERANGE, "2^63");
    expect_refused("18014398509481985K", -ERANGE, "2^63"); /* wraps to 1K */
    expect_refused("340282366920938463463374607431768211457", -ERANGE, "2^63");
}

static void test_size_parse_control_characters(void)
{
    struct error err = {0};
    uint64_t got;
    EXPECT_EQ(size_parse("1\n2\033[2J", "--size", &got, &err), -EINVAL);
    EXPECT(strpbrk(err.text, "\n\033") == NULL);
}

static void expect_formats(uint64_t bytes, const char *rounded, const char *exact)
{
    char buf[24];
    EXPECT_TEXT(size_format(bytes, buf, sizeof(buf)), rounded);
    EXPECT_TEXT(size_format_exact(bytes, buf, sizeof(buf)), exact);
}

static void test_size_format(void)
{
    expect_formats(0, "0", "0");
    expect_formats(1, "1", "1");
    expect_formats(512, "512", "512");
    expect_formats(1023, "1023", "1023");
    expect_formats(1024, "1K", "1K");
    expect_formats(1025, "1K", "1025");
    expect_formats(1030, "1.01K", "1030");
    expect_formats(1536, "1.5K", "1536");
    expect_formats(10239, "10K", "10239");
    expect_formats(10 * KIB + 51, "10K", "10291");
    expect_formats(10 * KIB + 52, "10.1K", "10292");
    expect_formats(16 * KIB, "16K", "16K");
    expect_formats(100 * KIB - 1, "100K", "102399");
    expect_formats(153 * KIB + 512, "154K", "157184");
    expect_formats(1023 * KIB, "1023K", "1023K");
    expect_formats(MIB - 512, "1M", "1048064");
    expect_formats(MIB - 513, "1023K", "1048063");
    expect_formats(MIB - 1, "1M", "1048575");
    expect_formats(GIB * 3 / 2, "1.5G", "1536M");
    expect_formats(TIB, "1T", "1T");
    expect_formats(1024 * TIB, "1P", "1P");
    expect_formats(INT64_MAX, "8192P", "9223372036854775807");
    expect_formats(UINT64_C(1) << 63, "8192P", "8192P");
    expect_formats(UINT64_MAX, "16384P", "18446744073709551615");
}

/* The exact form is what size_parse reads back; the rounded one is within half a unit of its last digit: 0.5 %. */
static void test_size_round_trip(void)
{
    struct prng r;
    prng_seed(&r, seed_choose());
    for (unsigned i = 0; i < 20000; i++) {
        uint64_t bytes = prng_u64(&r) >> (1 + prng_below(&r, 63));
        if (i % 2 == 0)
            bytes = bytes >> 10 * prng_below(&r, 6) << 10 * prng_below(&r, 5) & INT64_MAX;
        char exact[24], rounded[24], suffix = 0;
        uint64_t back = ~bytes;
        EXPECT_EQ(size_parse(size_format_exact(bytes, exact, sizeof(exact)), "x", &back, NULL), 0);
        EXPECT_EQ(back, bytes);
        double number = 0;
        int fields = sscanf(size_format(bytes, rounded, sizeof(rounded)), "%lf%c", &number, &suffix);
        for (const char *p = " KMGTP"; fields == 2 && *p != suffix; p++)
            number *= 1024;
        EXPECT(number >= (double)bytes * 0.995 && number <= (double)bytes * 1.005);
    }
}

static void test_text(void)
{
    struct text t = {0};
    text_printf(&t, "%s", "");
    EXPECT_TEXT(t.bytes, "");
    text_printf(&t, "%d-%s", 12, "ab");
    EXPECT_TEXT(t.bytes, "12-ab");
    EXPECT_EQ(t.length, 5);
    text_free(&t);
    EXPECT(t.bytes == NULL && t.length == 0 && t.capacity == 0);
    text_free(&t);
}

/* Pieces of every length up to 300 after each other: every way to meet the end of the capacity. */
static void test_text_growth(void)
{
    struct text t = {0};
    char piece[301];
    size_t total = 0;
    memset(piece, 'x', sizeof(piece));
    for (size_t n = 0; n <= 300; n++) {
        piece[n] = '\0';
        text_printf(&t, "%s", piece);
        piece[n] = 'x';
        total += n;
        EXPECT_EQ(t.length, total);
        EXPECT(t.capacity > total && strlen(t.bytes) == total);
    }
    for (size_t n = 0; n < 500; n++)
        text_printf(&t, "%c", 'y');
    EXPECT_EQ(strspn(t.bytes, "x"), total);
    EXPECT_EQ(strlen(t.bytes), total + 500);
    text_free(&t);
}

static void test_uuid(void)
{
    static const uint8_t uuid[16] = {0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef,
                                     0x00, 0xff, 0x10, 0x0f, 0xfe, 0xdc, 0xba, 0x98};
    char buf[37];
    EXPECT_TEXT(uuid_format(uuid, buf), "01234567-89ab-cdef-00ff-100ffedcba98");
}

int main(void)
{
    RUN(test_size_parse_good);
    RUN(test_size_parse_refused);
    RUN(test_size_parse_overflow);
    RUN(test_size_parse_control_characters);
    RUN(test_size_format);
    RUN(test_size_round_trip);
    RUN(test_text);
    RUN(test_text_growth);
    RUN(test_uuid);
    return tap_done();
}
