/*
 * "import disk  45% [#########           ] 1.2G of 2.6G, 310M/s, 5 s left", redrawn in place five times a second;
 * "destroy disk  3 s" where nobody says how far it is.
 */
#include "cli/progress.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "base/text.h"

#define SECOND_NS UINT64_C(1000000000)
enum { BAR_CELLS = 20 };

static void bar_draw(const struct progress *p, uint64_t done, uint64_t total, double seconds)
{
    char have[16], all[16], rate[16], bar[BAR_CELLS + 1];
    double per_second = seconds > 0 ? (double)done / seconds : 0;
    size_format(done, have, sizeof(have));
    size_format((uint64_t)per_second, rate, sizeof(rate));
    if (done == 0) {
        fprintf(stderr, "\r%.40s  %.0f s\033[K", p->what, seconds);
        return;
    }
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

/* The drawing thread. */
static void draw_until_ended(void *arg)
{
    struct progress *p = arg;
    env_mutex_lock(&p->lock);
    while (!p->ending) {
        const uint64_t now_ns = env_now_ns(env_os()), done = p->done, total = p->total;
        if (now_ns - p->started_ns > SECOND_NS) {
            env_mutex_unlock(&p->lock);
            p->drawn = true;
            bar_draw(p, done, total, (double)(now_ns - p->started_ns) / (double)SECOND_NS);
            env_mutex_lock(&p->lock);
        }
        if (!p->ending)
            (void)env_cond_wait_for(&p->ended, &p->lock, SECOND_NS / 5);
    }
    env_mutex_unlock(&p->lock);
}

void progress_begin(struct progress *p, const char *what, enum progress_signals signals)
{
    *p = (struct progress){.what = what, .started_ns = env_now_ns(env_os()), .signal_fd = -1};
    if (signals == PROGRESS_SIGNALS_WATCH) {
        sigset_t set;
        sigemptyset(&set);
        sigaddset(&set, SIGINT);
        sigaddset(&set, SIGTERM);
        sigaddset(&set, SIGHUP);
        sigprocmask(SIG_BLOCK, &set, NULL);
        p->signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    }
    env_mutex_init(&p->lock, env_os());
    env_cond_init(&p->ended, env_os());
    /* Without a thread the work is done all the same, unseen. */
    if (isatty(STDERR_FILENO) == 0 || env_thread_start(env_os(), "progress", draw_until_ended, p, &p->thread) != 0)
        p->thread = NULL;
}

int progress_tell(void *progress, uint64_t done, uint64_t total)
{
    struct progress *p = progress;
    env_mutex_lock(&p->lock);
    p->done = done;
    p->total = total;
    env_mutex_unlock(&p->lock);
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
    if (p->thread != NULL) {
        env_mutex_lock(&p->lock);
        p->ending = true;
        env_cond_signal(&p->ended);
        env_mutex_unlock(&p->lock);
        env_thread_join(p->thread);
    }
    env_cond_destroy(&p->ended);
    env_mutex_destroy(&p->lock);
    if (p->drawn)
        fputs("\r\033[K", stderr);
    p->drawn = false;
    if (p->signal_fd >= 0)
        close(p->signal_fd);
    p->signal_fd = -1;
}
