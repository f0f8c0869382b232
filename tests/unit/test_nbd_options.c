/*
 * The options of the handshake and their answers. Numbers in names: the rules that servers get wrong; CVE: regression
 * of that class.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/math.h"
#include "front/nbd/protocol.h"
#include "front/nbd/wire.h"
#include "nbd_fixture.h"
#include "raw_client.h"
#include "tap.h"

#define ALLOCATION "base:allocation"

static const char *const two_exports[] = {"disk", "other-ro", NULL};

static struct client_reply reply; /* 64 KiB: too large for the stack of a test */

/* GO or INFO with these requests; reads the answers into reply one by one through `each`. Returns the final type. */
static uint32_t ask_info(int fd, uint32_t option, const char *name, const uint16_t *infos, unsigned count,
                         void (*each)(void *arg), void *arg)
{
    static uint8_t payload[8192];
    if (!client_option(fd, option, payload, client_info_payload(payload, name, infos, count)))
        return 0;
    for (;;) {
        if (!client_option_reply(fd, &reply) || reply.option != option)
            return 0;
        if (reply.type != NBD_REP_INFO)
            return reply.type;
        if (each != NULL)
            each(arg);
    }
}

/* The connection still negotiates: a list comes back. */
static bool usable(int fd)
{
    return client_ask(fd, NBD_OPT_LIST, NULL, 0) == NBD_REP_ACK;
}

static void rule_2_export_name(void)
{
    struct fixture f;
    fixture_begin_with(&f, NULL, NULL, two_exports, 5 * MIB);
    for (uint32_t flags = 1; flags <= 3; flags += 2) {
        uint8_t bytes[134] = {0}, zeroes[124] = {0};
        int fd = client_connect(f.server);
        EXPECT(client_greet(fd, flags));
        EXPECT(client_option(fd, NBD_OPT_EXPORT_NAME, "disk", 4));
        size_t n = (flags & NBD_FLAG_NO_ZEROES) != 0 ? 10 : 134;
        EXPECT(client_receive(fd, bytes, n));
        EXPECT_EQ(wire_get_u64(bytes), 5 * MIB);
        EXPECT_EQ(wire_get_u16(bytes + 8) & NBD_FLAG_HAS_FLAGS, NBD_FLAG_HAS_FLAGS);
        EXPECT_EQ(memcmp(bytes + 10, zeroes, 124), 0);
        /* transmission follows at once */
        EXPECT_EQ(client_do(fd, 0, NBD_CMD_FLUSH, 0, 0, NULL), 0);
        close(fd);
    }
    int fd = client_connect(f.server);
    EXPECT(client_greet(fd, 3));
    EXPECT(client_option(fd, NBD_OPT_EXPORT_NAME, "no such", 7));
    EXPECT(client_sees_end(fd));
    close(fd);
    fixture_end(&f);
}

static void rule_2_no_padding_after_go(void)
{
    struct fixture f;
    fixture_begin(&f);
    int fd = client_connect(f.server);
    EXPECT(client_greet(fd, 1)); /* without NO_ZEROES */
    EXPECT_EQ(ask_info(fd, NBD_OPT_GO, "disk", NULL, 0, NULL, NULL), NBD_REP_ACK);
    EXPECT_EQ(client_do(fd, 0, NBD_CMD_FLUSH, 0, 0, NULL), 0);
    close(fd);
    fixture_end(&f);
}

static void rule_2_nonfixed_newstyle_has_one_option(void)
{
    struct fixture f;
    uint8_t bytes[10];
    fixture_begin(&f);
    int fd = client_connect(f.server);
    EXPECT(client_greet(fd, NBD_FLAG_NO_ZEROES));
    EXPECT(client_option(fd, NBD_OPT_EXPORT_NAME, "disk", 4));
    EXPECT(client_receive(fd, bytes, 10));
    close(fd);
    fd = client_connect(f.server);
    EXPECT(client_greet(fd, 0));
    EXPECT(client_option(fd, NBD_OPT_LIST, NULL, 0));
    EXPECT(client_sees_end(fd));
    close(fd);
    fixture_end(&f);
}

/* CVE-2022-26495: a name length near 2^32 wrapped; 26496: INFO and GO overflowed their buffer. */
static void rule_3_cve_2022_26495_lengths_in_go(void)
{
    static const uint32_t options[] = {NBD_OPT_INFO, NBD_OPT_GO};
    struct fixture f;
    fixture_begin(&f);
    for (int o = 0; o < 2; o++) {
        for (uint32_t payload = 0; payload < 16; payload++) {
            const uint32_t lengths[] = {1,           payload - 6, payload - 5,          payload - 4, payload,
                                        payload + 1, 0x7fffffff,  UINT32_C(0x80000000), UINT32_MAX,  UINT32_MAX - 4};
            for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
                uint8_t bytes[16] = {0};
                if (payload >= 6 && lengths[i] == payload - 6)
                    continue; /* well formed, names no export or one of zeros */
                int fd = client_connect(f.server);
                EXPECT(client_greet(fd, 3));
                wire_put_u32(bytes, lengths[i]);
                EXPECT_EQ(client_ask(fd, options[o], bytes, payload), NBD_REP_ERR_INVALID);
                EXPECT(usable(fd));
                close(fd);
            }
        }
    }
    fixture_end(&f);
}

static void rule_3_count_of_infos_must_match(void)
{
    struct fixture f;
    uint8_t payload[64];
    fixture_begin(&f);
    int fd = client_connect(f.server);
    EXPECT(client_greet(fd, 3));
    for (unsigned told = 0; told < 8; told++) {
        for (unsigned there = 0; there < 8; there++) {
            const uint16_t infos[8] = {0};
            size_t n = client_info_payload(payload, "disk", infos, there);
            wire_put_u16(payload + 8, (uint16_t)told);
            EXPECT_EQ(client_ask(fd, NBD_OPT_INFO, payload, n), told == there ? NBD_REP_ACK : NBD_REP_ERR_INVALID);
            if (there % 4 == 3) { /* an option limit applies */
                close(fd);
                fd = client_connect(f.server);
                EXPECT(client_greet(fd, 3));
            }
        }
        /* an odd byte behind the requests */
        size_t n = client_info_payload(payload, "disk", NULL, 0);
        EXPECT_EQ(client_ask(fd, NBD_OPT_INFO, payload, n + 1), NBD_REP_ERR_INVALID);
    }
    close(fd);
    fixture_end(&f);
}

static void rule_3_cve_2022_26496_option_lengths(void)
{
    static const uint32_t lengths[] = {1024 * 1024 + 1, 0x7fffffff, UINT32_C(0x80000000), UINT32_MAX};
    static const uint32_t options[] = {
        NBD_OPT_EXPORT_NAME, NBD_OPT_LIST, NBD_OPT_INFO, NBD_OPT_GO, NBD_OPT_ABORT, NBD_OPT_SET_META_CONTEXT, 77};
    struct fixture f;
    fixture_begin(&f);
    /* What cannot be skipped within reason ends the connection, at the header, without memory. */
    for (size_t o = 0; o < sizeof options / sizeof options[0]; o++) {
        for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
            uint8_t header[16] = "IHAVEOPT";
            wire_put_u32(header + 8, options[o]);
            wire_put_u32(header + 12, lengths[i]);
            int fd = client_connect(f.server);
            EXPECT(client_greet(fd, 3));
            EXPECT(client_send(fd, header, sizeof header));
            EXPECT(client_sees_end(fd));
            close(fd);
        }
    }
    /* What is longer than any sense but can be skipped is refused, in step. */
    uint8_t *payload = calloc(1, 1024 * 1024);
    REQUIRE(payload != NULL);
    int fd = client_connect(f.server);
    EXPECT(client_greet(fd, 3));
    EXPECT_EQ(client_ask(fd, NBD_OPT_GO, payload, 65537), NBD_REP_ERR_TOO_BIG);
    EXPECT_EQ(client_ask(fd, NBD_OPT_LIST, payload, 1024 * 1024), NBD_REP_ERR_INVALID);
    EXPECT(usable(fd));
    close(fd);
    free(payload);
    fixture_end(&f);
}

struct seen {
    bool export, name, description, block_size;
    uint64_t size;
    uint16_t flags;
    uint32_t minimum, preferred, maximum;
    char canonical[256];
};

static void note_info(void *arg)
{
    struct seen *seen = arg;
    switch (wire_get_u16(reply.data)) {
    case NBD_INFO_EXPORT:
        EXPECT(!seen->export);
        EXPECT_EQ(reply.length, 12);
        seen->export = true;
        seen->size = wire_get_u64(reply.data + 2);
        seen->flags = wire_get_u16(reply.data + 10);
        break;
    case NBD_INFO_NAME:
        seen->name = true;
        snprintf(seen->canonical, sizeof seen->canonical, "%.*s", (int)reply.length - 2, (char *)reply.data + 2);
        break;
    case NBD_INFO_DESCRIPTION:
        seen->description = reply.length > 2;
        break;
    case NBD_INFO_BLOCK_SIZE:
        EXPECT_EQ(reply.length, 14);
        seen->block_size = true;
        seen->minimum = wire_get_u32(reply.data + 2);
        seen->preferred = wire_get_u32(reply.data + 6);
        seen->maximum = wire_get_u32(reply.data + 10);
        break;
    }
}

static void rule_4_info_export_always_and_equal_answers(void)
{
    static const uint16_t all[] = {NBD_INFO_NAME, NBD_INFO_BLOCK_SIZE, 777, NBD_INFO_DESCRIPTION};
    struct fixture f;
    fixture_begin(&f);
    int fd = client_connect(f.server);
    struct seen none = {0}, info = {0}, go = {0};
    EXPECT(client_greet(fd, 3));
    EXPECT_EQ(ask_info(fd, NBD_OPT_INFO, "disk", NULL, 0, note_info, &none), NBD_REP_ACK);
    EXPECT(none.export && !none.name && !none.description && !none.block_size);
    EXPECT_EQ(none.size, 1 * GIB);
    EXPECT_EQ(client_ask(fd, NBD_OPT_STRUCTURED_REPLY, NULL, 0), NBD_REP_ACK);
    EXPECT_EQ(ask_info(fd, NBD_OPT_INFO, "", all, 4, note_info, &info), NBD_REP_ACK);
    EXPECT(info.export && info.name && info.description && info.block_size);
    EXPECT_TEXT(info.canonical, "disk");
    EXPECT_EQ(ask_info(fd, NBD_OPT_GO, "", all, 4, note_info, &go), NBD_REP_ACK);
    EXPECT_EQ(memcmp(&info, &go, sizeof go), 0);
    close(fd);
    fixture_end(&f);
}

static void rule_22_block_sizes(void)
{
    static const uint16_t block_size[] = {NBD_INFO_BLOCK_SIZE};
    struct fixture f;
    struct seen seen = {0};
    fixture_begin(&f);
    int fd = client_connect(f.server);
    EXPECT(client_greet(fd, 3));
    EXPECT_EQ(ask_info(fd, NBD_OPT_INFO, "disk", block_size, 1, note_info, &seen), NBD_REP_ACK);
    EXPECT_EQ(seen.minimum, 1);
    EXPECT(is_power_of_2(seen.preferred) && seen.preferred >= 512);
    EXPECT(seen.maximum >= seen.preferred && seen.maximum == 32 * MIB);
    close(fd);
    fixture_end(&f);
}

static void rule_4_failing_go_leaves_negotiation_usable(void)
{
    struct fixture f;
    fixture_begin_with(&f, NULL, NULL, two_exports, 5 * MIB);
    int fd = client_connect(f.server);
    EXPECT(client_greet(fd, 3));
    EXPECT_EQ(ask_info(fd, NBD_OPT_GO, "no such", NULL, 0, NULL, NULL), NBD_REP_ERR_UNKNOWN);
    EXPECT(reply.length > 0);
    EXPECT_EQ(ask_info(fd, NBD_OPT_INFO, "no such", NULL, 0, NULL, NULL), NBD_REP_ERR_UNKNOWN);
    /* The empty name is ambiguous here; it says so. */
    EXPECT_EQ(ask_info(fd, NBD_OPT_GO, "", NULL, 0, NULL, NULL), NBD_REP_ERR_UNKNOWN);
    EXPECT(usable(fd));
    EXPECT_EQ(ask_info(fd, NBD_OPT_GO, "disk", NULL, 0, NULL, NULL), NBD_REP_ACK);
    EXPECT_EQ(client_do(fd, 0, NBD_CMD_FLUSH, 0, 0, NULL), 0);
    close(fd);
    fixture_end(&f);
}

static void rule_5_options_without_payload(void)
{
    struct fixture f;
    fixture_begin(&f);
    int fd = client_connect(f.server);
    EXPECT(client_greet(fd, 3));
    EXPECT_EQ(client_ask(fd, NBD_OPT_LIST, "x", 1), NBD_REP_ERR_INVALID);
    EXPECT_EQ(client_ask(fd, NBD_OPT_STRUCTURED_REPLY, "x", 1), NBD_REP_ERR_INVALID);
    EXPECT_EQ(client_ask(fd, NBD_OPT_STRUCTURED_REPLY, NULL, 0), NBD_REP_ACK);
    EXPECT_EQ(client_ask(fd, NBD_OPT_STRUCTURED_REPLY, NULL, 0), NBD_REP_ERR_INVALID);
    /* TLS and extended headers are not here: unsupported, with or without a payload. */
    EXPECT_EQ(client_ask(fd, NBD_OPT_STARTTLS, "x", 1), NBD_REP_ERR_UNSUP);
    EXPECT_EQ(client_ask(fd, NBD_OPT_STARTTLS, NULL, 0), NBD_REP_ERR_UNSUP);
    EXPECT_EQ(client_ask(fd, NBD_OPT_EXTENDED_HEADERS, NULL, 0), NBD_REP_ERR_UNSUP);
    close(fd);
    fixture_end(&f);
}

/* CVE of qemu 2.11: a name of 4096 bytes and more smashed the stack. */
static void rule_5_cve_long_and_odd_names(void)
{
    static const struct {
        size_t n;
        uint8_t byte;
        uint32_t answer;
    } names[] = {{240, 'a', NBD_REP_ERR_UNKNOWN},  {241, 'a', NBD_REP_ERR_UNKNOWN},  {4095, 'a', NBD_REP_ERR_UNKNOWN},
                 {4096, 'a', NBD_REP_ERR_UNKNOWN}, {4097, 'a', NBD_REP_ERR_INVALID}, {8000, 'a', NBD_REP_ERR_INVALID},
                 {1, 0, NBD_REP_ERR_INVALID},      {5, 0xff, NBD_REP_ERR_INVALID}};
    static const uint32_t options[] = {NBD_OPT_INFO, NBD_OPT_GO};
    uint8_t *payload = malloc(8192);
    struct fixture f;
    REQUIRE(payload != NULL);
    fixture_begin(&f);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        int fd = client_connect(f.server);
        EXPECT(client_greet(fd, 3));
        wire_put_u32(payload, (uint32_t)names[i].n);
        memset(payload + 4, names[i].byte, names[i].n);
        wire_put_u16(payload + 4 + names[i].n, 0);
        for (int o = 0; o < 2; o++)
            EXPECT_EQ(client_ask(fd, options[o], payload, names[i].n + 6), names[i].answer);
        EXPECT(usable(fd));
        /* the same name, where no error can be sent */
        (void)client_option(fd, NBD_OPT_EXPORT_NAME, payload + 4, names[i].n); /* it may close before all is sent */
        EXPECT(client_sees_end(fd));
        close(fd);
    }
    free(payload);
    fixture_end(&f);
}

static void rule_5_a_list_of_thousands(void)
{
    enum { COUNT = 5000 };
    static char texts[COUNT][16];
    static const char *names[COUNT + 1];
    struct fixture f;
    for (int i = 0; i < COUNT; i++) {
        snprintf(texts[i], sizeof texts[i], "v%05d", i);
        names[i] = texts[i];
    }
    fixture_begin_with(&f, NULL, NULL, names, 4096);
    int fd = client_connect(f.server);
    EXPECT(client_greet(fd, 3));
    EXPECT(client_option(fd, NBD_OPT_LIST, NULL, 0));
    int right = 0;
    for (int i = 0; i < COUNT && client_option_reply(fd, &reply) && reply.type == NBD_REP_SERVER; i++)
        right += wire_get_u32(reply.data) == 6 && memcmp(reply.data + 4, texts[i], 6) == 0;
    EXPECT_EQ(right, COUNT);
    EXPECT(client_option_reply(fd, &reply));
    EXPECT_EQ(reply.type, NBD_REP_ACK);
    /* Rule 7: who was told of exports may ask about them, beyond the usual number of options. */
    for (int i = 0; i < 200; i++)
        EXPECT_EQ(ask_info(fd, NBD_OPT_INFO, texts[i * 20], NULL, 0, NULL, NULL), NBD_REP_ACK);
    close(fd);
    fixture_end(&f);
}

static void transmission_flags(void)
{
    struct fixture f;
    struct client_export e;
    fixture_begin_with(&f, NULL, NULL, two_exports, 5 * MIB);
    int fd = client_open(f.server, "disk", 0, &e);
    EXPECT_EQ(e.size, 5 * MIB);
    /* HAS_FLAGS FLUSH FUA TRIM WRITE_ZEROES MULTI_CONN CACHE FAST_ZERO: rule 28, FLUSH must never be missing */
    EXPECT_EQ(e.flags, 1 | 4 | 8 | 32 | 64 | 256 | 1024 | 2048);
    close(fd);
    fd = client_open(f.server, "disk", CLIENT_STRUCTURED, &e);
    EXPECT_EQ(e.flags, 1 | 4 | 8 | 32 | 64 | 128 | 256 | 1024 | 2048); /* and DF: rule 36 */
    close(fd);
    fd = client_open(f.server, "other-ro", 0, &e);
    EXPECT_EQ(e.flags, 1 | 2 | 4 | 256 | 1024); /* rule 32: no FAST_ZERO without WRITE_ZEROES */
    close(fd);
    fixture_end(&f);
}

int main(void)
{
    RUN(rule_2_export_name);
    RUN(rule_2_no_padding_after_go);
    RUN(rule_2_nonfixed_newstyle_has_one_option);
    RUN(rule_3_cve_2022_26495_lengths_in_go);
    RUN(rule_3_count_of_infos_must_match);
    RUN(rule_3_cve_2022_26496_option_lengths);
    RUN(rule_4_info_export_always_and_equal_answers);
    RUN(rule_22_block_sizes);
    RUN(rule_4_failing_go_leaves_negotiation_usable);
    RUN(rule_5_options_without_payload);
    RUN(rule_5_cve_long_and_odd_names);
    RUN(rule_5_a_list_of_thousands);
    RUN(transmission_flags);
    return tap_done();
}
