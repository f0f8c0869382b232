/*
 * The `ashlar` command: finds the verb and runs it.
 *
 * What holds for every verb is settled here: descriptors 0, 1 and 2 are open (a file that gets one of these numbers
 * would be written over by a message), SIGPIPE is an error of write and not a death, an error is one line on standard
 * error, and standard output that could not be written is a failure.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "ashlar.h"
#include "base/error.h"
#include "cli/output.h"
#include "cli/verb.h"
#include "front/control/nearest.h"

/* In the order in which help prints them. */
static const struct verb *const verbs[] = {
    &verb_create, &verb_list,  &verb_get,  &verb_set,    &verb_rename, &verb_resize, &verb_destroy, &verb_import,
    &verb_export, &verb_serve, &verb_stop, &verb_status, &verb_check,  &verb_dump,   &verb_doctor,
};
enum { VERB_COUNT = sizeof(verbs) / sizeof(verbs[0]) };

static const struct verb *verb_find(const char *name)
{
    for (unsigned i = 0; i < VERB_COUNT; i++)
        if (strcmp(verbs[i]->name, name) == 0)
            return verbs[i];
    return NULL;
}

static int verb_unknown(const char *name)
{
    const char *names[VERB_COUNT + 1];
    char hint[96];
    for (unsigned i = 0; i < VERB_COUNT; i++)
        names[i] = verbs[i]->name;
    names[VERB_COUNT] = "help";
    nearest_hint(name, names, VERB_COUNT + 1, hint, sizeof(hint));
    fprintf(stderr, "ashlar: no verb is called '%.64s'%s\n", name, hint[0] != '\0' ? hint : "; see: ashlar help");
    return EXIT_USAGE;
}

static void print_overview(FILE *out)
{
    fprintf(out, "usage: ashlar VERB POOL [TARGET] [ARGUMENTS]\n\n"
                 "Compressed, checksummed block volumes in a pool: one file or block device. POOL is its path,\n"
                 "TARGET a volume in it. Every verb works while the pool is served and while it is not.\n\n");
    for (unsigned i = 0; i < VERB_COUNT; i++)
        fprintf(out, "  %-9s %s\n", verbs[i]->name, verbs[i]->summary);
    fprintf(out, "\nFirst steps:\n"
                 "  ashlar create pool --size 100G        a pool that may grow to 100G; it takes what it holds\n"
                 "  ashlar create pool disk 20G           a volume in it\n"
                 "  ashlar serve pool                     serves all volumes over NBD; tells how to connect\n\n"
                 "ashlar help VERB tells more; so does ashlar(1). Sizes: K M G T, 1024-based.\n");
}

static int run_help(int argc, char **argv)
{
    if (argc == 0) {
        print_overview(stdout);
        return EXIT_DONE;
    }
    const struct verb *verb = verb_find(argv[0]);
    if (verb == NULL)
        return verb_unknown(argv[0]);
    verb_print_help(verb);
    return EXIT_DONE;
}

static int run(int argc, char **argv)
{
    if (argc < 2) {
        print_overview(stderr);
        return EXIT_USAGE;
    }
    const char *word = argv[1];
    if (strcmp(word, "--version") == 0 || strcmp(word, "version") == 0) {
        printf("ashlar %s\n", ashlar_version_text());
        return EXIT_DONE;
    }
    if (strcmp(word, "help") == 0 || strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0)
        return run_help(argc - 2, argv + 2);
    const struct verb *verb = verb_find(word);
    return verb != NULL ? verb_run(verb, argc - 2, argv + 2) : verb_unknown(word);
}

/* Opens /dev/null on what is closed of 0, 1 and 2. */
static void standard_descriptors(void)
{
    for (int fd = 0; fd <= 2; fd++)
        if (fcntl(fd, F_GETFD) < 0 && errno == EBADF && open("/dev/null", O_RDWR) < 0)
            _exit(EXIT_FAILED);
}

int main(int argc, char **argv)
{
    standard_descriptors();
    struct sigaction ignore = {.sa_handler = SIG_IGN};
    (void)sigaction(SIGPIPE, &ignore, NULL);
    int status = run(argc, argv);
    if (fflush(stdout) != 0 || ferror(stdout)) {
        fprintf(stderr, "ashlar: standard output: %s\n", strerror(errno));
        return status == EXIT_DONE ? EXIT_FAILED : status;
    }
    return status;
}
