/*
 * Reports as JSON. Numbers beyond 2^53 do not survive every reader, so log addresses are kept as numbers (a pool would
 * have to be written for centuries) and incarnations are not printed.
 */
#include "check/report.h"

#include <inttypes.h>
#include <jansson.h>

static json_t *number(uint64_t n)
{
    return json_integer((json_int_t)n);
}

static json_t *problem_json(const struct check_problem *p)
{
    json_t *o = json_pack("{s:s, s:s, s:s}", "id", check_problem_name(p->id), "severity",
                          check_severity_name(check_problem_severity(p->id)), "text", check_problem_text(p->id));
    if (o == NULL)
        return NULL;
    int bad = 0;
    if (p->volume[0] != '\0')
        bad |= json_object_set_new(o, "volume", json_string(p->volume));
    if (p->length_bytes != 0) {
        bad |= json_object_set_new(o, "offset_bytes", number(p->offset_bytes));
        bad |= json_object_set_new(o, "length_bytes", number(p->length_bytes));
    }
    if (p->device_offset_bytes != CHECK_NOWHERE)
        bad |= json_object_set_new(o, "device_offset_bytes", number(p->device_offset_bytes));
    if (p->address != CHECK_NOWHERE)
        bad |= json_object_set_new(o, "log_address", number(p->address));
    if (p->detail[0] != '\0')
        bad |= json_object_set_new(o, "detail", json_string(p->detail));
    if (bad != 0) {
        json_decref(o);
        return NULL;
    }
    return o;
}

static json_t *problems_json(const struct check_report *report)
{
    json_t *list = json_array();
    for (size_t i = 0; i < report->problem_count && list != NULL; i++)
        if (json_array_append_new(list, problem_json(&report->problems[i])) != 0) {
            json_decref(list);
            list = NULL;
        }
    return list;
}

static json_t *repairs_json(const struct check_report *report)
{
    json_t *list = json_array();
    for (size_t i = 0; i < report->repair_count && list != NULL; i++) {
        const struct check_repair *r = &report->repairs[i];
        json_t *o = json_pack("{s:I, s:I, s:s}", "device_offset_bytes", (json_int_t)r->device_offset_bytes,
                              "length_bytes", (json_int_t)r->length_bytes, "what", r->what);
        if (json_array_append_new(list, o) != 0) {
            json_decref(list);
            list = NULL;
        }
    }
    return list;
}

static json_t *summary_json(const struct check_summary *s)
{
    char uuid[37];
    const struct {
        const char *name;
        uint64_t value;
    } figures[] = {
        {"label_sequence", s->label_sequence},
        {"checkpoint", s->checkpoint},
        {"volumes", s->volumes},
        {"nodes", s->nodes},
        {"records", s->records},
        {"patches", s->patches},
        {"stored_bytes", s->stored_bytes},
        {"chunks", s->chunks},
        {"replay_from", s->replay_from},
        {"replay_to", s->replay_to},
        {"replay_chunks", s->replay_chunks},
        {"replay_bytes", s->replay_bytes},
        {"replay_entries", s->replay_entries},
        {"skipped_entries", s->skipped_entries},
        {"slots_free", s->slots_free},
        {"slots_used", s->slots_used},
        {"slots_quarantine", s->slots_quarantine},
        {"read_bytes", s->read_bytes},
    };
    json_t *o = json_pack("{s:s, s:b}", "pool_uuid", uuid_format(s->pool_uuid, uuid), "closed_cleanly", s->clean);
    for (size_t i = 0; i < sizeof(figures) / sizeof(figures[0]) && o != NULL; i++)
        if (json_object_set_new(o, figures[i].name, number(figures[i].value)) != 0) {
            json_decref(o);
            o = NULL;
        }
    return o;
}

char *check_report_json(const struct check_report *report)
{
    json_t *problems = problems_json(report), *repairs = repairs_json(report);
    json_t *summary = summary_json(&report->summary);
    char *text = NULL;
    if (problems != NULL && repairs != NULL && summary != NULL) {
        json_t *o = json_pack("{s:b, s:I, s:I, s:I, s:O, s:O, s:O}", "clean", check_report_is_clean(report), "wrong",
                              (json_int_t)check_report_count(report, CHECK_WRONG), "suspicious",
                              (json_int_t)check_report_count(report, CHECK_SUSPICIOUS), "leaks",
                              (json_int_t)check_report_count(report, CHECK_LEAK), "problems", problems, "repairs",
                              repairs, "summary", summary);
        if (o != NULL)
            text = json_dumps(o, JSON_INDENT(2) | JSON_PRESERVE_ORDER);
        json_decref(o);
    }
    json_decref(problems);
    json_decref(repairs);
    json_decref(summary);
    return text;
}
