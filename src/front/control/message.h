/*
 * What goes over the control socket, as bytes. One JSON value a line, each ended by a newline (which JSON never needs
 * inside one):
 *
 *     request   {"ashlar": 1, "verb": "list", "arguments": {...}}
 *     replies   {"alive": true}                        now and then while a request is worked on
 *               {"progress": {"done": N, "total": N}}  total 0: not known
 *               {"confirm": true}                      answered by the request "go", or by hanging up
 *               {"result": {...}}                      the last line for a request
 *               {"error": {"errno": 17, "name": "EEXIST", "text": "..."}}  or this one
 *
 * "ashlar" is the version of this protocol; both sides refuse another. A peer may be hostile: a request is bounded in
 * length and depth, everything in it is checked for its type, and unknown keys are refused, so that a misspelt one is
 * not silently ignored.
 */
#ifndef ASHLAR_FRONT_CONTROL_MESSAGE_H
#define ASHLAR_FRONT_CONTROL_MESSAGE_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

struct error;

#define CONTROL_VERSION 1
#define CONTROL_REQUEST_BYTES_MAX (64 * 1024)
#define CONTROL_REPLY_BYTES_MAX (64 * 1024 * 1024)
#define CONTROL_VERB_BYTES_MAX 31

struct control_request {
    char verb[CONTROL_VERB_BYTES_MAX + 1];
    json_t *arguments; /* an object; owned */
};

/* Takes a line apart (newline not included). -EINVAL: malformed; -EPROTONOSUPPORT: another version. Only on 0 is there
 * something to clear. */
int control_request_decode(const char *bytes, size_t n, struct control_request *ret_request, struct error *err);
void control_request_clear(struct control_request *request);
/* A line with its newline, from malloc; NULL: no memory. Borrows arguments (NULL: none). */
char *control_request_encode(const char *verb, const json_t *arguments);

enum control_reply_kind {
    CONTROL_ALIVE,
    CONTROL_PROGRESS,
    CONTROL_CONFIRM,
    CONTROL_RESULT,
    CONTROL_ERROR,
};

struct control_reply {
    enum control_reply_kind kind;
    uint64_t done, total; /* PROGRESS */
    json_t *result;       /* RESULT; owned */
};

/* ERROR fills err with what the server said and returns 0; a malformed line is -EPROTO. On 0 and RESULT,
 * ret_reply->result is the caller's. */
int control_reply_decode(const char *bytes, size_t n, struct control_reply *ret_reply, struct error *err);

/* Lines with their newline, from malloc; NULL: no memory. */
char *control_reply_alive(void);
char *control_reply_confirm(void);
char *control_reply_progress(uint64_t done, uint64_t total);
char *control_reply_result(const json_t *result);
char *control_reply_error(const struct error *err);

/* Makes a text valid UTF-8, as JSON needs it: if it is not, each byte beyond ASCII becomes '?'. */
void control_text_clean(char *text);

/* The object {"errno", "name", "text"} of an error. NULL: no memory. */
json_t *control_error_to_json(const struct error *err);

/*
 * Arguments of a request, one after another: each call takes one; done() refuses what nobody took. The first failure is
 * kept in err, and later calls do nothing, so that a verb may take all and test once.
 */
struct arguments {
    const json_t *object;
    const char *verb;
    size_t taken;
    struct error *err;
    int code;
};

struct arguments arguments_of(const struct control_request *request, struct error *err);
/* NULL if it is absent (an error if required). The text belongs to the request. */
const char *argument_text(struct arguments *a, const char *name, int required);
uint64_t argument_u64(struct arguments *a, const char *name, int required, uint64_t otherwise);
int argument_flag(struct arguments *a, const char *name);
/* An object of texts (property names and values), or NULL. */
const json_t *argument_texts(struct arguments *a, const char *name);
int arguments_done(struct arguments *a);

#endif
