/*
 * "import disk  45% [#########           ] 1.2G of 2.6G, 310M/s, 5 s left", redrawn in place five times a second.
 */
#include "cli/progress.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "base/text.h"
#include "env/env.h"

#define SECOND_NS UINT64_C(1000000000)
enum { BAR_CELLS = 20 };

void progress_begin(struct progress *p, const char *what)
{
    sigset_t set;
    *p = (struct progress){.what = what, .terminal = isatty(STDERR_FILENO) != 0, .started_ns = env_now_ns(env_os())};
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGHUP);
    sigprocmask(SIG_BLOCK, &set, NULL);
    p->signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

static void bar_draw(const struct progress *p, uint64_t done, uint64_t total, double seconds)
{
    char have[16], all[16], rate[16], bar[BAR_CELLS + 1];
    double per_second = seconds > 0 ? (double)done / seconds : 0;
    size_format(done, have, sizeof(have));
    size_format((uint64_t)per_second, rate, sizeof(rate));
    if (total == 0 || done > total) {
        fprintf(stderr, "\r%.40s  %s, %s/s\033[K", p->what, have, rate);
        return;
    }
    unsigned cells = (unsigned)((double)done / (double)total * BAR_CELLS);
    memset(bar, ' ', BAR_CELLS);
    memset(bar, '#', cells);
    bar[BAR_CELLS] = '\0';
    fprintf(stderr, "\r%.40s %3u%% [%s] %s of %s, %s/s", p->what, (unsigned)((double)done / (double)total * 100), bar,
            have, size_format(total, all, sizeof(all)), rate);
    if (per_second > 0)
        fprintf(stderr, ", %.0f s left", (double)(total - done) / per_second);
    fputs("\033[K", stderr);
}

int progress_tell(void *progress, uint64_t done, uint64_t total)
{
    struct progress *p = progress;
    uint64_t now_ns = env_now_ns(env_os());
    if (p->terminal && now_ns - p->started_ns > SECOND_NS && now_ns - p->drawn_ns > SECOND_NS / 5) {
        p->drawn = true;
        p->drawn_ns = now_ns;
        bar_draw(p, done, total, (double)(now_ns - p->started_ns) / (double)SECOND_NS);
    }
    return progress_confirm(p);
}

int progress_confirm(void *progress)
{
    struct progress *p = progress;
    struct signalfd_siginfo info;
    return p->signal_fd >= 0 && read(p->signal_fd, &info, sizeof(info)) == (ssize_t)sizeof(info);
}

void progress_end(struct progress *p)
{
    if (p->drawn)
        fputs("\r\033[K", stderr);
    p->drawn = false;
    if (p->signal_fd >= 0)
        close(p->signal_fd);
    p->signal_fd = -1;
}
