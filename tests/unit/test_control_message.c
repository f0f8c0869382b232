/*
 * Control messages: what is taken, what is refused and why, arguments, replies, and the hint for a mistyped word.
 */
#include <stdlib.h>

#include "base/error.h"
#include "front/control/message.h"
#include "front/control/nearest.h"
#include "tap.h"

static int decode(const char *text, struct control_request *ret_request, struct error *err)
{
    *err = (struct error){0};
    return control_request_decode(text, strlen(text), ret_request, err);
}

static void test_request_round_trip(void)
{
    struct control_request request;
    struct error err;
    json_t *arguments = json_pack("{s:s, s:I}", "volume", "a\nb", "size", (json_int_t)INT64_MAX);
    char *line = control_request_encode("create", arguments);
    REQUIRE(line != NULL);
    size_t n = strlen(line);
    EXPECT_EQ(line[n - 1], '\n');
    EXPECT(memchr(line, '\n', n - 1) == NULL);
    line[n - 1] = '\0';
    REQUIRE(decode(line, &request, &err) == 0);
    EXPECT_TEXT(request.verb, "create");
    EXPECT(json_equal(request.arguments, arguments));
    control_request_clear(&request);
    json_decref(arguments);
    free(line);
}

static void test_request_without_arguments(void)
{
    struct control_request request;
    struct error err;
    REQUIRE(decode("{\"ashlar\":1,\"verb\":\"list\"}", &request, &err) == 0);
    EXPECT(json_is_object(request.arguments));
    EXPECT_EQ(json_object_size(request.arguments), 0);
    control_request_clear(&request);
}

static void test_request_refused(void)
{
    static const struct {
        const char *text;
        int code;
        const char *says;
    } cases[] = {
        {"", -EINVAL, "control message"},
        {"{", -EINVAL, "control message"},
        {"[]", -EINVAL, "not a JSON object"},
        {"{\"verb\":\"list\"}", -EINVAL, "version of the protocol"},
        {"{\"ashlar\":\"1\",\"verb\":\"list\"}", -EINVAL, "version of the protocol"},
        {"{\"ashlar\":2,\"verb\":\"list\"}", -EPROTONOSUPPORT, "version 2"},
        {"{\"ashlar\":1}", -EINVAL, "no \"verb\""},
        {"{\"ashlar\":1,\"verb\":3}", -EINVAL, "no \"verb\""},
        {"{\"ashlar\":1,\"verb\":\"abcdefghabcdefghabcdefghabcdefgh\"}", -EINVAL, "more than 31"},
        {"{\"ashlar\":1,\"verb\":\"list\",\"arguments\":[]}", -EINVAL, "not an object"},
        {"{\"ashlar\":1,\"verb\":\"list\",\"extra\":1}", -EINVAL, "unknown keys"},
        {"{\"ashlar\":1,\"ashlar\":1,\"verb\":\"list\"}", -EINVAL, "duplicate"},
        {"{\"ashlar\":1,\"verb\":\"li\\u0000st\"}", -EINVAL, "control message"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct control_request request;
        struct error err;
        EXPECT_EQ(decode(cases[i].text, &request, &err), cases[i].code);
        if (strstr(err.text, cases[i].says) == NULL)
            tap_fail(__FILE__, __LINE__, err.text);
    }
}

static void test_request_bounds(void)
{
    struct control_request request;
    struct error err = {0};
    size_t n = CONTROL_REQUEST_BYTES_MAX + 1;
    char *big = malloc(n);
    REQUIRE(big != NULL);
    memset(big, ' ', n);
    EXPECT_EQ(control_request_decode(big, n, &request, &err), -EINVAL);
    EXPECT(strstr(err.text, "longer than") != NULL);
    memset(big, '[', n - 1); /* as deep as it can be */
    err = (struct error){0};
    EXPECT_EQ(control_request_decode(big, n - 1, &request, &err), -EINVAL);
    free(big);
}

static void test_arguments(void)
{
    struct control_request request;
    struct error err;
    REQUIRE(decode("{\"ashlar\":1,\"verb\":\"v\",\"arguments\":{\"a\":\"x\",\"n\":7,\"f\":true,\"o\":{\"p\":\"q\"}}}",
                   &request, &err) == 0);
    struct arguments a = arguments_of(&request, &err);
    EXPECT_TEXT(argument_text(&a, "a", 1), "x");
    EXPECT_EQ(argument_u64(&a, "n", 1, 0), 7);
    EXPECT_EQ(argument_u64(&a, "absent", 0, 9), 9);
    EXPECT_EQ(argument_flag(&a, "f"), 1);
    EXPECT_EQ(argument_flag(&a, "g"), 0);
    EXPECT(argument_texts(&a, "o") != NULL);
    EXPECT_EQ(arguments_done(&a), 0);
    control_request_clear(&request);
}

static void test_arguments_refused(void)
{
    static const struct {
        const char *arguments;
        const char *says;
    } cases[] = {
        {"{}", "no argument \"a\""},
        {"{\"a\":1}", "\"a\" is not a text"},
        {"{\"a\":\"x\",\"n\":-1}", "\"n\" is not a number"},
        {"{\"a\":\"x\",\"n\":1.5}", "\"n\" is not a number"},
        {"{\"a\":\"x\",\"n\":1,\"f\":1}", "\"f\" is not true or false"},
        {"{\"a\":\"x\",\"n\":1,\"o\":{\"p\":1}}", "\"o\" is not an object of texts"},
        {"{\"a\":\"x\",\"n\":1,\"z\":1}", "unknown arguments"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct control_request request;
        struct error err = {0};
        char text[256];
        snprintf(text, sizeof(text), "{\"ashlar\":1,\"verb\":\"v\",\"arguments\":%s}", cases[i].arguments);
        REQUIRE(decode(text, &request, &err) == 0);
        struct arguments a = arguments_of(&request, &err);
        (void)argument_text(&a, "a", 1);
        (void)argument_u64(&a, "n", 0, 0);
        (void)argument_flag(&a, "f");
        (void)argument_texts(&a, "o");
        EXPECT_EQ(arguments_done(&a), -EINVAL);
        EXPECT_EQ(err.code, -EINVAL);
        if (strstr(err.text, cases[i].says) == NULL)
            tap_fail(__FILE__, __LINE__, err.text);
        control_request_clear(&request);
    }
}

static void test_replies(void)
{
    struct control_reply reply;
    struct error err = {0}, said = {0};
    json_t *result = json_pack("{s:i}", "x", 1);
    char *line = control_reply_result(result);
    EXPECT_EQ(control_reply_decode(line, strlen(line), &reply, &err), 0);
    EXPECT_EQ(reply.kind, CONTROL_RESULT);
    EXPECT(json_equal(reply.result, result));
    json_decref(reply.result);
    json_decref(result);
    free(line);

    line = control_reply_progress(3, UINT64_C(1) << 60);
    EXPECT_EQ(control_reply_decode(line, strlen(line), &reply, &err), 0);
    EXPECT_EQ(reply.kind, CONTROL_PROGRESS);
    EXPECT_EQ(reply.done, 3);
    EXPECT_EQ(reply.total, UINT64_C(1) << 60);
    free(line);

    line = control_reply_alive();
    EXPECT_EQ(control_reply_decode(line, strlen(line), &reply, &err), 0);
    EXPECT_EQ(reply.kind, CONTROL_ALIVE);
    free(line);

    error_set(&said, -EEXIST, "volume '%s' exists", "caf\xe9"); /* not UTF-8 */
    line = control_reply_error(&said);
    REQUIRE(line != NULL);
    EXPECT_EQ(control_reply_decode(line, strlen(line), &reply, &err), 0);
    EXPECT_EQ(reply.kind, CONTROL_ERROR);
    EXPECT_EQ(err.code, -EEXIST);
    EXPECT_TEXT(err.text, "volume 'caf?' exists");
    free(line);
}

static void test_replies_refused(void)
{
    static const char *const lines[] = {
        "", "{}", "[]", "{\"error\":{}}", "{\"error\":{\"errno\":0,\"text\":\"x\"}}", "{\"error\":{\"errno\":1}}"};
    for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
        struct control_reply reply;
        struct error err = {0};
        EXPECT_EQ(control_reply_decode(lines[i], strlen(lines[i]), &reply, &err), -EPROTO);
        EXPECT_EQ(err.code, -EPROTO);
    }
}

static void test_nearest(void)
{
    static const char *const names[] = {"create", "list", "destroy", "record-size", "resize", "rename", "set", "serve"};
    size_t count = sizeof(names) / sizeof(names[0]);
    EXPECT_TEXT(nearest_name("creat", names, count), "create");
    EXPECT_TEXT(nearest_name("lsit", names, count), "list");
    EXPECT_TEXT(nearest_name("dest", names, count), "destroy");
    EXPECT_TEXT(nearest_name("recordsize", names, count), "record-size");
    EXPECT_TEXT(nearest_name("Record_Size", names, count), "record-size");
    EXPECT_TEXT(nearest_name("server", names, count), "serve");
    static const char *const alike[] = {"compression-ratio", "compression"};
    EXPECT_TEXT(nearest_name("compres", alike, 2), "compression"); /* the shorter of two as near */
    EXPECT(nearest_name("frobnicate", names, count) == NULL);
    EXPECT(nearest_name("x", names, count) == NULL);
    EXPECT(nearest_name("", names, count) == NULL);
    EXPECT(nearest_name("aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", names, count) == NULL);
    char hint[64];
    EXPECT_TEXT(nearest_hint("creat", names, count, hint, sizeof(hint)), "; did you mean 'create'?");
    EXPECT_TEXT(nearest_hint("zzz", names, count, hint, sizeof(hint)), "");
}

int main(void)
{
    RUN(test_request_round_trip);
    RUN(test_request_without_arguments);
    RUN(test_request_refused);
    RUN(test_request_bounds);
    RUN(test_arguments);
    RUN(test_arguments_refused);
    RUN(test_replies);
    RUN(test_replies_refused);
    RUN(test_nearest);
    return tap_done();
}
