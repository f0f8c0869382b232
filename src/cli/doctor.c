/*
 * ashlar doctor [POOL|DIRECTORY]: looks at the machine a pool lives on, before it hurts. Reads; writes only a nameless
 * temporary file beside the pool.
 */
#include "cli/doctor.h"

#include <stdarg.h>
#include <stdio.h>

#include "base/text.h"
#include "cli/output.h"
#include "cli/verb.h"

static const char *const verdict_names[] = {"ok", "note", "warning", "bad"};

static void doctor_section(struct doctor *d, const char *title)
{
    if (!d->json)
        printf("%s\n", title);
}

void doctor_add(struct doctor *d, enum verdict verdict, const char *name, json_t *figures, const char *format, ...)
{
    char line[512];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof(line), format, args);
    va_end(args);
    d->warnings += verdict == VERDICT_WARN;
    d->problems += verdict == VERDICT_BAD;
    if (!d->json) {
        printf("  %-7s  %s: %s\n", verdict_names[verdict], name, line);
        (void)fflush(stdout); /* the next one may take a second */
    }
    json_t *finding = json_pack("{s:s, s:s, s:s}", "name", name, "verdict", verdict_names[verdict], "text", line);
    if (figures != NULL)
        (void)json_object_set_new(finding, "figures", figures);
    (void)json_array_append_new(d->findings, finding);
}

static int run_doctor(struct invocation *in)
{
    struct doctor d = {.json = in->json, .findings = json_array()};
    const char *path = invocation_operand(in, 0);
    const char *data = invocation_value(in, "data");
    doctor_section(&d, "kernel");
    doctor_kernel(&d);
    doctor_section(&d, "limits");
    doctor_limits(&d);
    doctor_section(&d, path != NULL ? path : "this directory");
    doctor_place(&d, path != NULL ? path : ".");
    doctor_section(&d, "codecs and checksum, one thread");
    doctor_codec(&d, data);
    if (d.json) {
        json_t *result = json_pack("{s:i, s:i, s:O}", "warnings", (int)d.warnings, "problems", (int)d.problems,
                                   "findings", d.findings);
        output_json(result);
        json_decref(result);
    } else if (d.warnings + d.problems == 0) {
        printf("nothing to complain about\n");
    } else {
        printf("%u warnings, %u problems\n", d.warnings, d.problems);
    }
    json_decref(d.findings);
    return d.problems > 0 ? EXIT_FAILED : EXIT_DONE;
}

static const struct option_spec doctor_options[] = {
    {"data", "FILE", "what to compress (default: this program and its libraries)"},
    {NULL},
};

const struct verb verb_doctor = {
    .name = "doctor",
    .operands = "[POOL|DIRECTORY]",
    .summary = "examines the machine: kernel, limits, flushes, codec speed",
    .details =
        "Takes about five seconds. Compares our codecs with the bare libraries, and these with a plain loop, so\n"
        "that a badly built one is seen; times flushes beside the pool, and says so where they are too fast to\n"
        "be true. Exit status 1 if a pool cannot work here.",
    .options = doctor_options,
    .operand_count_min = 0,
    .operand_count_max = 1,
    .run = run_doctor,
};
