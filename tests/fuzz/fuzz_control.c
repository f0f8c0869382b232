/*
 * Fuzz target: what comes over the control socket. First byte even: a request, taken apart as the server does and then
 * as each verb does; odd: a reply, taken apart as the command does. What is taken must encode to what decodes the same.
 */
#include "fuzz.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/error.h"
#include "front/control/message.h"
#include "front/control/property.h"
#include "pool/pool.h"

/* The arguments of all verbs, as the verbs take them. */
static void take_arguments(const struct control_request *request)
{
    struct error err = {0};
    struct arguments a = arguments_of(request, &err);
    const char *volume = argument_text(&a, "volume", 1);
    (void)argument_text(&a, "to", 0);
    (void)argument_u64(&a, "size", 0, 0);
    (void)argument_flag(&a, "force");
    const json_t *properties = argument_texts(&a, "properties");
    const int r = arguments_done(&a);
    CHECK_EQ(r, err.code);
    CHECK(r < 0 || volume != NULL);
    if (properties == NULL)
        return;
    union {
        const json_t *in;
        json_t *out;
    } object = {.in = properties};
    const char *name;
    json_t *value;
    json_object_foreach(object.out, name, value)
    {
        struct volume_settings settings = {0};
        struct property_changes changes = {0};
        (void)property_set_at_create(name, json_string_value(value), &settings, &err);
        (void)property_change_take(name, json_string_value(value), &changes, &err);
        CHECK(settings.record_bytes == 0 || (settings.record_bytes & (settings.record_bytes - 1)) == 0);
    }
}

static int fuzz_request(const uint8_t *bytes, size_t n)
{
    struct control_request request, again;
    struct error err = {0};
    const int r = control_request_decode((const char *)bytes, n, &request, &err);
    CHECK_EQ(r, err.code);
    if (r < 0)
        return 0;
    take_arguments(&request);
    char *line = control_request_encode(request.verb, request.arguments);
    CHECK(line != NULL);
    const size_t length = strlen(line);
    CHECK(memchr(line, '\n', length) == line + length - 1);
    /* Escapes may make it longer than a request may be. */
    if (length - 1 <= CONTROL_REQUEST_BYTES_MAX && control_request_decode(line, length - 1, &again, NULL) == 0) {
        CHECK(strcmp(again.verb, request.verb) == 0);
        CHECK(json_equal(again.arguments, request.arguments));
        control_request_clear(&again);
    }
    free(line);
    control_request_clear(&request);
    return 1;
}

static int fuzz_reply(const uint8_t *bytes, size_t n)
{
    struct control_reply reply;
    struct error err = {0};
    const int r = control_reply_decode((const char *)bytes, n, &reply, &err);
    if (r < 0) {
        CHECK_EQ(r, -EPROTO);
        return 0;
    }
    CHECK_EQ(reply.kind == CONTROL_ERROR, err.code < 0);
    CHECK_EQ(reply.kind == CONTROL_RESULT, reply.result != NULL);
    json_decref(reply.result);
    return 1;
}

int fuzz_one(const uint8_t *bytes, size_t n)
{
    if (n == 0)
        return 0;
    return bytes[0] % 2 == 0 ? fuzz_request(bytes + 1, n - 1) : fuzz_reply(bytes + 1, n - 1);
}

static json_t *random_arguments(struct prng *r)
{
    static const char *const names[] = {"compression", "record-size", "size", "name", "none"};
    static const char *const values[] = {"zstd-3", "lz4", "off", "16K", "1M", "3", "10KB", "-1", ""};
    json_t *properties = json_object();
    for (uint64_t i = prng_below(r, 4); i > 0; i--)
        json_object_set_new(properties, names[prng_below(r, 5)], json_string(values[prng_below(r, 9)]));
    json_t *arguments =
        json_pack("{s:s, s:o}", "volume", prng_chance(r, 500) ? "disk" : "a.b:c", "properties", properties);
    if (prng_chance(r, 500))
        json_object_set_new(arguments, "size", json_integer((json_int_t)(prng_u64(r) >> 2)));
    if (prng_chance(r, 300))
        json_object_set_new(arguments, "force", json_boolean(prng_chance(r, 500)));
    return arguments;
}

static char *random_reply(struct prng *r)
{
    if (prng_chance(r, 250))
        return control_reply_alive();
    if (prng_chance(r, 333))
        return control_reply_progress(prng_u64(r) >> 1, prng_u64(r) >> 1);
    if (prng_chance(r, 500)) {
        struct error err = {0};
        error_set(&err, -(int)(1 + prng_below(r, 130)), "text %d", (int)prng_below(r, 1000));
        return control_reply_error(&err);
    }
    json_t *result = random_arguments(r);
    char *line = control_reply_result(result);
    json_decref(result);
    return line;
}

size_t fuzz_generate(struct prng *r, uint8_t *buf)
{
    static const char *const verbs[] = {"list", "get", "set", "create", "destroy", "import", "status", "stop"};
    const bool is_reply = prng_chance(r, 300);
    char *line;
    if (is_reply) {
        line = random_reply(r);
    } else {
        json_t *arguments = random_arguments(r);
        line = control_request_encode(verbs[prng_below(r, 8)], arguments);
        json_decref(arguments);
    }
    CHECK(line != NULL);
    const size_t n = strlen(line);
    buf[0] = is_reply;
    memcpy(buf + 1, line, n);
    free(line);
    return n + 1;
}
