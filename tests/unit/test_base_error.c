/*
 * Errors, and assertions as a child process sees them.
 */
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/check.h"
#include "base/error.h"
#include "tap.h"

static void test_error_set(void)
{
    struct error err = {0};
    EXPECT_EQ(error_set(&err, -EINVAL, "%s: %d is odd", "--size", 3), -EINVAL);
    EXPECT_EQ(err.code, -EINVAL);
    EXPECT_TEXT(err.text, "--size: 3 is odd");
    EXPECT_EQ(error_set(&err, -EIO, "a consequence"), -EIO);
    EXPECT_EQ(err.code, -EINVAL);
    EXPECT_TEXT(err.text, "--size: 3 is odd");
    EXPECT_EQ(error_set(NULL, -ENOMEM, "nobody listens"), -ENOMEM);
}

static void test_error_long(void)
{
    static char name[ERROR_TEXT_BYTES + 100];
    memset(name, 'n', sizeof(name) - 1);
    for (size_t length = ERROR_TEXT_BYTES - 3; length < ERROR_TEXT_BYTES + 3; length++) {
        struct error err = {0};
        EXPECT_EQ(error_set(&err, -EINVAL, "%.*s", (int)length, name), -EINVAL);
        bool cut = length >= ERROR_TEXT_BYTES;
        EXPECT_EQ(strlen(err.text), cut ? ERROR_TEXT_BYTES - 1 : length);
        EXPECT_EQ(strcmp(err.text + strlen(err.text) - 3, "...") == 0, cut);
    }
}

static void test_error_one_line(void)
{
    struct error err = {0};
    error_set(&err, -EINVAL, "name '%s' \xc3\xa4", "a\nb\033[2J\x7f\tc");
    EXPECT_TEXT(err.text, "name 'a?b?[2J??c' \xc3\xa4");
}

/* Runs function in a child with stderr into ret_text; the child's wait status. */
static int status_of(void (*function)(void), char *ret_text, size_t text_bytes)
{
    int fds[2];
    if (pipe(fds) != 0)
        return -1;
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        dup2(fds[1], STDERR_FILENO);
        close(fds[0]);
        function();
        _exit(0);
    }
    close(fds[1]);
    size_t length = 0;
    for (ssize_t n; (n = read(fds[0], ret_text + length, text_bytes - 1 - length)) > 0;)
        length += (size_t)n;
    ret_text[length] = '\0';
    close(fds[0]);
    int status = -1;
    waitpid(child, &status, 0);
    return status;
}

static void check_true(void)
{
    int seven = 7;
    CHECK(seven == 7);
    CHECK_EQ(seven, 7);
    CHECK_NE(seven, 8);
    CHECK_LT(seven, 8);
    CHECK_LE(seven, 7);
    CHECK_GT(seven, 6);
    CHECK_GE(seven, 7);
    DEBUG_CHECK(seven == 7);
}

static void check_false(void)
{
    int seven = 7;
    CHECK(seven == 8);
}

static void check_less_false(void)
{
    int seven = 7;
    CHECK_LT(seven, 3 + 4);
}

static void check_long(void)
{
    static char what[2000];
    memset(what, 'w', sizeof(what) - 1);
    check_failed("file.c", 1, what);
}

static void debug_check_false(void)
{
    int seven = 7;
    (void)seven;
    DEBUG_CHECK(seven == 8);
}

static bool aborted(int status)
{
    return WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT;
}

static void test_checks(void)
{
    char text[4096];
    EXPECT_EQ(status_of(check_true, text, sizeof(text)), 0);
    EXPECT_TEXT(text, "");
    EXPECT(aborted(status_of(check_false, text, sizeof(text))));
    EXPECT(strstr(text, "test_base_error.c:") != NULL && strstr(text, ": check failed: seven == 8\n") != NULL);
    EXPECT(aborted(status_of(check_less_false, text, sizeof(text))));
    EXPECT(strstr(text, "seven < 3 + 4 (left 7 = 0x7, right 7 = 0x7)\n") != NULL);
    EXPECT(aborted(status_of(check_long, text, sizeof(text))));
    EXPECT(strncmp(text, "file.c:1: check failed: www", 27) == 0 && strlen(text) < 600);
    EXPECT(strchr(text, '\n') == text + strlen(text) - 1);
#ifdef ASHLAR_DEBUG
    EXPECT(aborted(status_of(debug_check_false, text, sizeof(text))));
#else
    EXPECT_EQ(status_of(debug_check_false, text, sizeof(text)), 0);
#endif
}

int main(void)
{
    RUN(test_error_set);
    RUN(test_error_long);
    RUN(test_error_one_line);
    RUN(test_checks);
    return tap_done();
}
