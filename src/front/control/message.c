/*
 * Control messages: JSON in, checked; JSON out.
 */
#include "front/control/message.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/math.h"

/* Appends the newline that ends a message. */
static char *message_end(char *text)
{
    if (text == NULL)
        return NULL;
    size_t n = strlen(text);
    char *line = realloc(text, n + 2);
    if (line == NULL) {
        free(text);
        return NULL;
    }
    memcpy(line + n, "\n", 2);
    return line;
}

/* Dumps a value and drops it. */
static char *message_of(json_t *value)
{
    if (value == NULL)
        return NULL;
    char *text = json_dumps(value, JSON_COMPACT);
    json_decref(value);
    return message_end(text);
}

static json_t *message_parse(const char *bytes, size_t n, size_t n_max, int code, struct error *err)
{
    json_error_t where;
    if (n > n_max) {
        error_set(err, code, "control message: longer than %zu bytes", n_max);
        return NULL;
    }
    json_t *value = json_loadb(bytes, n, JSON_REJECT_DUPLICATES, &where);
    if (value == NULL || !json_is_object(value)) {
        error_set(err, code, "control message: %s", value == NULL ? where.text : "not a JSON object");
        json_decref(value);
        return NULL;
    }
    return value;
}

/* ---- requests ---- */

static int request_take(const json_t *message, struct control_request *ret_request, struct error *err)
{
    const json_t *version = json_object_get(message, "ashlar");
    const json_t *verb = json_object_get(message, "verb");
    json_t *arguments = json_object_get(message, "arguments");
    if (!json_is_integer(version))
        return error_set(err, -EINVAL, "control message: no \"ashlar\" with the version of the protocol");
    if (json_integer_value(version) != CONTROL_VERSION)
        return error_set(err, -EPROTONOSUPPORT,
                         "control message: version %lld; this server speaks %d: use the ashlar command it came with",
                         (long long)json_integer_value(version), CONTROL_VERSION);
    if (!json_is_string(verb) || json_string_length(verb) > CONTROL_VERB_BYTES_MAX)
        return error_set(err, -EINVAL, "control message: no \"verb\", or one of more than %d bytes",
                         CONTROL_VERB_BYTES_MAX);
    if (arguments != NULL && !json_is_object(arguments))
        return error_set(err, -EINVAL, "control message: \"arguments\" is not an object");
    if (json_object_size(message) != (arguments != NULL ? 3u : 2u))
        return error_set(err, -EINVAL, "control message: unknown keys beside ashlar, verb and arguments");
    memcpy(ret_request->verb, json_string_value(verb), json_string_length(verb) + 1);
    ret_request->arguments = arguments != NULL ? json_incref(arguments) : json_object();
    return ret_request->arguments != NULL ? 0 : error_set(err, -ENOMEM, "no memory for a control message");
}

int control_request_decode(const char *bytes, size_t n, struct control_request *ret_request, struct error *err)
{
    json_t *message = message_parse(bytes, n, CONTROL_REQUEST_BYTES_MAX, -EINVAL, err);
    if (message == NULL)
        return -EINVAL;
    int r = request_take(message, ret_request, err);
    json_decref(message);
    return r;
}

void control_request_clear(struct control_request *request)
{
    json_decref(request->arguments);
    request->arguments = NULL;
}

char *control_request_encode(const char *verb, const json_t *arguments)
{
    if (arguments == NULL)
        return message_of(json_pack("{s:i, s:s}", "ashlar", CONTROL_VERSION, "verb", verb));
    return message_of(json_pack("{s:i, s:s, s:O}", "ashlar", CONTROL_VERSION, "verb", verb, "arguments", arguments));
}

/* ---- replies ---- */

static int reply_take_error(const json_t *object, struct error *err)
{
    const json_t *number = json_object_get(object, "errno");
    const json_t *text = json_object_get(object, "text");
    if (!json_is_integer(number) || json_integer_value(number) <= 0 || json_integer_value(number) > 4095 ||
        !json_is_string(text))
        return error_set(err, -EPROTO, "control reply: a malformed error");
    error_set(err, -(int)json_integer_value(number), "%s", json_string_value(text));
    return 0;
}

static int reply_take(const json_t *message, struct control_reply *ret_reply, struct error *err)
{
    json_t *value;
    memset(ret_reply, 0, sizeof(*ret_reply));
    if ((value = json_object_get(message, "result")) != NULL) {
        ret_reply->kind = CONTROL_RESULT;
        ret_reply->result = json_incref(value);
        return 0;
    }
    if ((value = json_object_get(message, "error")) != NULL) {
        ret_reply->kind = CONTROL_ERROR;
        return reply_take_error(value, err);
    }
    if ((value = json_object_get(message, "progress")) != NULL) {
        json_int_t done = json_integer_value(json_object_get(value, "done"));
        json_int_t total = json_integer_value(json_object_get(value, "total"));
        ret_reply->kind = CONTROL_PROGRESS;
        ret_reply->done = done > 0 ? (uint64_t)done : 0;
        ret_reply->total = total > 0 ? (uint64_t)total : 0;
        return 0;
    }
    if (json_is_true(json_object_get(message, "confirm"))) {
        ret_reply->kind = CONTROL_CONFIRM;
        return 0;
    }
    if (json_is_true(json_object_get(message, "alive"))) {
        ret_reply->kind = CONTROL_ALIVE;
        return 0;
    }
    return error_set(err, -EPROTO, "control reply: none of result, error, progress, confirm, alive");
}

int control_reply_decode(const char *bytes, size_t n, struct control_reply *ret_reply, struct error *err)
{
    json_t *message = message_parse(bytes, n, CONTROL_REPLY_BYTES_MAX, -EPROTO, err);
    if (message == NULL)
        return -EPROTO;
    int r = reply_take(message, ret_reply, err);
    json_decref(message);
    return r;
}

char *control_reply_alive(void)
{
    return message_of(json_pack("{s:b}", "alive", 1));
}

char *control_reply_confirm(void)
{
    return message_of(json_pack("{s:b}", "confirm", 1));
}

char *control_reply_progress(uint64_t done, uint64_t total)
{
    return message_of(json_pack("{s:{s:I, s:I}}", "progress", "done", (json_int_t)done, "total", (json_int_t)total));
}

char *control_reply_result(const json_t *result)
{
    return message_of(json_pack("{s:O}", "result", result));
}

void control_text_clean(char *text)
{
    json_t *value = json_string(text);
    if (value == NULL)
        for (; *text != '\0'; text++)
            if ((unsigned char)*text >= 0x80)
                *text = '?';
    json_decref(value);
}

json_t *control_error_to_json(const struct error *err)
{
    int number = err->code < 0 ? -err->code : EIO;
    const char *name = strerrorname_np(number);
    char text[sizeof(err->text)];
    memcpy(text, err->text, sizeof(text));
    control_text_clean(text);
    return json_pack("{s:i, s:s, s:s}", "errno", number, "name", name != NULL ? name : "?", "text", text);
}

char *control_reply_error(const struct error *err)
{
    return message_of(json_pack("{s:o}", "error", control_error_to_json(err)));
}

/* ---- arguments ---- */

struct arguments arguments_of(const struct control_request *request, struct error *err)
{
    return (struct arguments){.object = request->arguments, .verb = request->verb, .err = err};
}

static const json_t *argument_take(struct arguments *a, const char *name, int required)
{
    if (a->code < 0)
        return NULL;
    const json_t *value = json_object_get(a->object, name);
    if (value != NULL)
        a->taken++;
    else if (required)
        a->code = error_set(a->err, -EINVAL, "%s: no argument \"%s\"", a->verb, name);
    return value;
}

static void argument_wrong(struct arguments *a, const char *name, const char *wanted)
{
    a->code = error_set(a->err, -EINVAL, "%s: argument \"%s\" is not %s", a->verb, name, wanted);
}

const char *argument_text(struct arguments *a, const char *name, int required)
{
    const json_t *value = argument_take(a, name, required);
    if (value == NULL)
        return NULL;
    if (!json_is_string(value)) {
        argument_wrong(a, name, "a text");
        return NULL;
    }
    return json_string_value(value);
}

uint64_t argument_u64(struct arguments *a, const char *name, int required, uint64_t otherwise)
{
    const json_t *value = argument_take(a, name, required);
    if (value == NULL)
        return otherwise;
    if (!json_is_integer(value) || json_integer_value(value) < 0) {
        argument_wrong(a, name, "a number from 0 to 2^63 - 1");
        return otherwise;
    }
    return (uint64_t)json_integer_value(value);
}

int argument_flag(struct arguments *a, const char *name)
{
    const json_t *value = argument_take(a, name, 0);
    if (value != NULL && !json_is_boolean(value))
        argument_wrong(a, name, "true or false");
    return json_is_true(value);
}

const json_t *argument_texts(struct arguments *a, const char *name)
{
    const json_t *object = argument_take(a, name, 0);
    if (object == NULL)
        return NULL;
    int good = json_is_object(object);
    if (good) {
        union {
            const json_t *in;
            json_t *out; /* the iteration takes no const; nothing is changed */
        } it = {.in = object};
        const char *key;
        json_t *value;
        json_object_foreach(it.out, key, value) good = good && json_is_string(value);
    }
    if (!good)
        argument_wrong(a, name, "an object of texts");
    return good ? object : NULL;
}

int arguments_done(struct arguments *a)
{
    if (a->code == 0 && a->taken != json_object_size(a->object))
        a->code = error_set(a->err, -EINVAL, "%s: unknown arguments among the %zu given", a->verb,
                            json_object_size(a->object));
    return a->code;
}
