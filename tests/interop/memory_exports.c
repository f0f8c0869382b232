/*
 * Content is a mapping per export, with a state per block of 4 KiB (hole, provisioned, data). Stripes of locks keep
 * overlapping requests apart, so that what tests do on purpose is no data race. The list of waiting requests, faults
 * and counts have one lock.
 */
#include "memory_exports.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/check.h"
#include "base/error.h"
#include "base/math.h"
#include "base/prng.h"
#include "base/tree.h"
#include "env/env.h"

#define EXPORTS_MAX 8192
#define FAULTS_MAX 16
#define STRIPES 64
#define STRIPE_BYTES (1 * MIB)

struct export
{
    struct memory_exports *owner;
    char name[EXPORT_NAME_BYTES];
    uint64_t size_bytes, mapped_bytes; /* size: guarded by the owner's lock */
    bool read_only;
    uint8_t *bytes;  /* NULL until first used; guarded by the owner's lock */
    uint8_t *states; /* enum extent_kind per block */
    struct env_mutex stripes[STRIPES];
};

struct fault {
    enum request_kind kind;
    int error;
    uint64_t offset, length;
    unsigned count;
};

struct pending {
    struct export *export;
    struct request *request;
    struct list link;
};

struct memory_exports {
    struct env *env;
    struct memory_options options;
    struct export **exports;
    unsigned export_count;
    struct env_thread **threads;

    /* Guarded by lock. */
    struct env_mutex lock;
    struct env_cond changed;
    struct list waiting;
    unsigned waiting_count;
    bool held, runs_held, ended, lies;
    struct fault faults[FAULTS_MAX];
    struct memory_counts counts;
    struct prng prng;
};

/* ---- content ---- */

static size_t block_count(const struct export *e)
{
    return (size_t)max_u64(1, div_ceil(e->mapped_bytes, MEMORY_BLOCK_BYTES));
}

static void map_export(struct export *e)
{
    env_mutex_lock(&e->owner->lock);
    if (e->bytes == NULL) {
        size_t blocks = block_count(e);
        int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
        e->bytes = mmap(NULL, blocks * MEMORY_BLOCK_BYTES, PROT_READ | PROT_WRITE, flags, -1, 0);
        e->states = mmap(NULL, blocks, PROT_READ | PROT_WRITE, flags, -1, 0);
        CHECK(e->bytes != MAP_FAILED);
        CHECK(e->states != MAP_FAILED);
        memset(e->states, EXTENT_HOLE, blocks);
    }
    env_mutex_unlock(&e->owner->lock);
}

/* Calls each() for the pieces of [offset, offset + length) that lie in one stripe, under its lock. */
static void for_stripes(struct export *e, uint64_t offset, uint64_t length, void *arg,
                        void (*each)(struct export *e, uint64_t offset, uint64_t length, void *arg))
{
    while (length > 0) {
        uint64_t n = min_u64(length, STRIPE_BYTES - offset % STRIPE_BYTES);
        struct env_mutex *lock = &e->stripes[offset / STRIPE_BYTES % STRIPES];
        env_mutex_lock(lock);
        each(e, offset, n, arg);
        env_mutex_unlock(lock);
        offset += n;
        length -= n;
    }
}

struct copier {
    const struct iovec *iov;
    size_t skip;
    bool writes;
};

static void copy_piece(struct export *e, uint64_t offset, uint64_t length, void *arg)
{
    struct copier *copier = arg;
    while (length > 0) {
        size_t n = (size_t)min_u64(length, copier->iov->iov_len - copier->skip);
        uint8_t *there = (uint8_t *)copier->iov->iov_base + copier->skip;
        if (copier->writes) {
            memcpy(e->bytes + offset, there, n);
            for (uint64_t block = offset / MEMORY_BLOCK_BYTES; block * MEMORY_BLOCK_BYTES < offset + n; block++)
                e->states[block] = EXTENT_DATA;
        } else {
            memcpy(there, e->bytes + offset, n);
        }
        offset += n;
        length -= n;
        copier->skip += n;
        if (copier->skip == copier->iov->iov_len) {
            copier->iov++;
            copier->skip = 0;
        }
    }
}

/* Whole blocks get the state, others keep theirs. */
static void zero_piece(struct export *e, uint64_t offset, uint64_t length, void *arg)
{
    const enum extent_kind *kind = arg;
    uint64_t first = div_ceil(offset, MEMORY_BLOCK_BYTES), end = (offset + length) / MEMORY_BLOCK_BYTES;
    if (first >= end) {
        memset(e->bytes + offset, 0, length);
        return;
    }
    /* Pages of a private mapping that are given back read as zeroes: nothing is touched. */
    uint64_t from = first * MEMORY_BLOCK_BYTES, to = end * MEMORY_BLOCK_BYTES;
    memset(e->bytes + offset, 0, from - offset);
    int ret = madvise(e->bytes + from, to - from, MADV_DONTNEED);
    CHECK_EQ(ret, 0);
    memset(e->bytes + to, 0, offset + length - to);
    memset(e->states + first, (int)*kind, end - first);
}

static void add_extent(struct request *r, uint64_t length, enum extent_kind kind)
{
    if (r->extent_count > 0 && r->extents[r->extent_count - 1].kind == kind)
        r->extents[r->extent_count - 1].length_bytes += length;
    else if (r->extent_count < r->extent_room)
        r->extents[r->extent_count++] = (struct extent){.length_bytes = length, .kind = kind};
    else
        r->extent_room = 0; /* full: nothing more is added */
}

static void extents_piece(struct export *e, uint64_t offset, uint64_t length, void *arg)
{
    struct request *r = arg;
    while (length > 0 && r->extent_room > 0) {
        uint64_t n = min_u64(length, MEMORY_BLOCK_BYTES - offset % MEMORY_BLOCK_BYTES);
        add_extent(r, n, (enum extent_kind)e->states[offset / MEMORY_BLOCK_BYTES]);
        offset += n;
        length -= n;
    }
}

static void lie_about_extents(struct request *r)
{
    static const struct extent lies[] = {{0, EXTENT_DATA},
                                         {512, EXTENT_HOLE},
                                         {512, EXTENT_HOLE},
                                         {0, EXTENT_PROVISIONED},
                                         {UINT64_MAX / 2, EXTENT_DATA}};
    for (r->extent_count = 0; r->extent_count < min_u64(r->extent_room, 5); r->extent_count++)
        r->extents[r->extent_count] = lies[r->extent_count];
}

static void carry_out(struct export *e, struct request *r, bool lies)
{
    static enum extent_kind hole = EXTENT_HOLE, provisioned = EXTENT_PROVISIONED;
    struct copier copier = {.iov = r->iov, .writes = r->kind == REQUEST_WRITE};
    map_export(e);
    switch (r->kind) {
    case REQUEST_READ:
    case REQUEST_WRITE:
        for_stripes(e, r->offset_bytes, r->length_bytes, &copier, copy_piece);
        break;
    case REQUEST_TRIM:
        for_stripes(e, r->offset_bytes, r->length_bytes, &hole, zero_piece);
        break;
    case REQUEST_ZERO:
        for_stripes(e, r->offset_bytes, r->length_bytes, (r->flags & VOLUME_PROVISION) != 0 ? &provisioned : &hole,
                    zero_piece);
        break;
    case REQUEST_EXTENTS:
        r->extent_count = 0;
        if (lies)
            lie_about_extents(r);
        else
            for_stripes(e, r->offset_bytes, r->length_bytes, r, extents_piece);
        break;
    case REQUEST_FLUSH:
    case REQUEST_PREFETCH:
        break;
    }
}

/* ---- carrying out ---- */

static int find_fault_locked(struct memory_exports *m, const struct request *r)
{
    for (int i = 0; i < FAULTS_MAX; i++) {
        struct fault *fault = &m->faults[i];
        bool touches = r->kind == REQUEST_FLUSH || (r->offset_bytes < fault->offset + fault->length &&
                                                    fault->offset < r->offset_bytes + r->length_bytes);
        if (fault->count > 0 && fault->kind == r->kind && touches) {
            fault->count--;
            return fault->error;
        }
    }
    return 0;
}

/* Leaves r->result. */
static void execute(struct export *e, struct request *r)
{
    struct memory_exports *m = e->owner;
    env_mutex_lock(&m->lock);
    int error = find_fault_locked(m, r);
    bool lies = m->lies;
    bool outside = !range_inside(r->offset_bytes, r->length_bytes, e->size_bytes);
    env_mutex_unlock(&m->lock);
    if (error == 0 && outside)
        error = EINVAL;
    if (error == 0)
        carry_out(e, r, lies);
    r->result = -error;
    env_mutex_lock(&m->lock);
    m->counts.waiting--;
    env_mutex_unlock(&m->lock);
}

static void serve(void *arg)
{
    struct memory_exports *m = arg;
    env_mutex_lock(&m->lock);
    for (;;) {
        while (!m->ended && (m->waiting_count == 0 || m->held))
            env_cond_wait(&m->changed, &m->lock);
        if (m->waiting_count == 0)
            break;
        struct list *at = m->waiting.next;
        for (uint64_t skip = prng_below(&m->prng, m->waiting_count); skip > 0; skip--)
            at = at->next;
        list_remove(at);
        m->waiting_count--;
        uint64_t delay = m->options.delay_ns_max > 0 ? prng_below(&m->prng, m->options.delay_ns_max) : 0;
        env_mutex_unlock(&m->lock);
        struct pending *pending = CONTAINER_OF(at, struct pending, link);
        if (delay > 0)
            env_sleep_ns(m->env, delay);
        execute(pending->export, pending->request);
        pending->request->complete(pending->request);
        free(pending);
        env_mutex_lock(&m->lock);
    }
    env_mutex_unlock(&m->lock);
}

static void count_locked(struct memory_exports *m, const struct request *r)
{
    int iov_count = r->kind == REQUEST_READ || r->kind == REQUEST_WRITE ? r->iov_count : 0;
    uint64_t sum = 0;
    for (int i = 0; i < iov_count; i++)
        sum += r->iov[i].iov_len;
    if (r->kind == REQUEST_READ || r->kind == REQUEST_WRITE)
        CHECK_EQ(sum, r->length_bytes);
    m->counts.requests[r->kind]++;
    m->counts.fua += (r->flags & VOLUME_FUA) != 0;
    m->counts.provision += (r->flags & VOLUME_PROVISION) != 0;
    m->counts.waiting++;
    m->counts.length_bytes_max = max_u64(m->counts.length_bytes_max, r->length_bytes);
    if (iov_count > m->counts.iov_count_max)
        m->counts.iov_count_max = iov_count;
}

static void memory_submit(struct export *e, struct request *r)
{
    struct memory_exports *m = e->owner;
    struct pending *pending = NULL;
    if (m->options.thread_count > 0) {
        pending = malloc(sizeof *pending);
        CHECK(pending != NULL);
        *pending = (struct pending){.export = e, .request = r};
    }
    env_mutex_lock(&m->lock);
    count_locked(m, r);
    if (pending != NULL) {
        list_append(&m->waiting, &pending->link);
        m->waiting_count++;
        env_cond_broadcast(&m->changed); /* not one of those that wait for something else */
    }
    env_mutex_unlock(&m->lock);
    if (pending == NULL) {
        execute(e, r);
        r->complete(r);
    }
}

static void memory_run(struct export *e, struct request *r)
{
    struct memory_exports *m = e->owner;
    env_mutex_lock(&m->lock);
    count_locked(m, r);
    m->counts.runs++;
    m->counts.running++;
    uint64_t delay = m->options.delay_ns_max > 0 ? prng_below(&m->prng, m->options.delay_ns_max) : 0;
    while (m->runs_held)
        env_cond_wait(&m->changed, &m->lock);
    env_mutex_unlock(&m->lock);
    if (delay > 0)
        env_sleep_ns(m->env, delay);
    execute(e, r);
    env_mutex_lock(&m->lock);
    m->counts.running--;
    env_mutex_unlock(&m->lock);
}

/* ---- names ---- */

static int memory_list(void *backend, const char *after, struct export_entry *ret_entries, size_t room,
                       size_t *ret_count)
{
    struct memory_exports *m = backend;
    size_t count = 0;
    if (m->options.open_delay_ns > 0)
        env_sleep_ns(m->env, m->options.open_delay_ns);
    for (unsigned i = 0; i < m->export_count && count < room; i++) {
        if (strcmp(m->exports[i]->name, after) <= 0)
            continue;
        (void)snprintf(ret_entries[count].name, EXPORT_NAME_BYTES, "%s", m->exports[i]->name);
        (void)snprintf(ret_entries[count].description, EXPORT_DESCRIPTION_BYTES, "memory %u", i);
        count++;
    }
    env_mutex_lock(&m->lock);
    m->counts.lists++;
    env_mutex_unlock(&m->lock);
    *ret_count = count;
    return 0;
}

static int memory_open(void *backend, const char *name, struct export **ret_export, struct export_info *ret_info,
                       struct error *err)
{
    struct memory_exports *m = backend;
    struct export *found = name[0] == '\0' && m->export_count == 1 ? m->exports[0] : NULL;
    if (m->options.open_delay_ns > 0)
        env_sleep_ns(m->env, m->options.open_delay_ns);
    for (unsigned i = 0; i < m->export_count && found == NULL; i++)
        if (name[0] != '\0' && strcmp(m->exports[i]->name, name) == 0)
            found = m->exports[i];
    if (found == NULL)
        return error_set(err, -ENOENT, "no export \"%s\" among %u", name, m->export_count);
    env_mutex_lock(&m->lock);
    m->counts.opens++;
    *ret_info = (struct export_info){
        .size_bytes = found->size_bytes, .block_bytes_preferred = 16384, .read_only = found->read_only};
    env_mutex_unlock(&m->lock);
    (void)snprintf(ret_info->entry.name, EXPORT_NAME_BYTES, "%s", found->name);
    (void)snprintf(ret_info->entry.description, EXPORT_DESCRIPTION_BYTES, "memory");
    *ret_export = found;
    return 0;
}

static void memory_close(struct export *e)
{
    env_mutex_lock(&e->owner->lock);
    e->owner->counts.closes++;
    env_mutex_unlock(&e->owner->lock);
}

static uint64_t memory_size_bytes(struct export *e)
{
    env_mutex_lock(&e->owner->lock);
    uint64_t size = e->size_bytes;
    env_mutex_unlock(&e->owner->lock);
    return size;
}

const struct export_ops *memory_export_ops(void)
{
    static const struct export_ops ops = {.list = memory_list,
                                          .open = memory_open,
                                          .close = memory_close,
                                          .size_bytes = memory_size_bytes,
                                          .submit = memory_submit};
    return &ops;
}

const struct export_ops *memory_exports_ops_of(const struct memory_exports *m)
{
    static const struct export_ops ops = {.list = memory_list,
                                          .open = memory_open,
                                          .close = memory_close,
                                          .size_bytes = memory_size_bytes,
                                          .submit = memory_submit,
                                          .run = memory_run};
    return m->options.runs ? &ops : memory_export_ops();
}

/* ---- for the test ---- */

struct memory_exports *memory_exports_new(struct env *env, const struct memory_options *options)
{
    struct memory_exports *m = calloc(1, sizeof *m);
    CHECK(m != NULL);
    m->env = env;
    m->options = *options;
    m->exports = calloc(EXPORTS_MAX, sizeof *m->exports);
    m->threads = calloc(options->thread_count + 1, sizeof *m->threads);
    CHECK(m->exports != NULL);
    CHECK(m->threads != NULL);
    env_mutex_init(&m->lock, env);
    env_cond_init(&m->changed, env);
    list_init(&m->waiting);
    prng_seed(&m->prng, options->seed);
    for (unsigned i = 0; i < options->thread_count; i++) {
        int ret = env_thread_start(env, "memory", serve, m, &m->threads[i]);
        CHECK_EQ(ret, 0);
    }
    return m;
}

void memory_exports_free(struct memory_exports *m)
{
    env_mutex_lock(&m->lock);
    m->ended = true;
    env_cond_broadcast(&m->changed);
    env_mutex_unlock(&m->lock);
    for (unsigned i = 0; i < m->options.thread_count; i++)
        env_thread_join(m->threads[i]);
    CHECK_EQ(m->counts.waiting, 0);
    CHECK_EQ(m->counts.opens, m->counts.closes);
    for (unsigned i = 0; i < m->export_count; i++) {
        struct export *e = m->exports[i];
        size_t blocks = block_count(e);
        if (e->bytes != NULL) {
            (void)munmap(e->bytes, blocks * MEMORY_BLOCK_BYTES);
            (void)munmap(e->states, blocks);
        }
        for (unsigned s = 0; s < STRIPES; s++)
            env_mutex_destroy(&e->stripes[s]);
        free(e);
    }
    env_cond_destroy(&m->changed);
    env_mutex_destroy(&m->lock);
    free(m->threads);
    free(m->exports);
    free(m);
}

void memory_exports_add(struct memory_exports *m, const char *name, uint64_t size_bytes, bool read_only)
{
    struct export *e = calloc(1, sizeof *e);
    CHECK(e != NULL);
    CHECK_LT(m->export_count, EXPORTS_MAX);
    e->owner = m;
    (void)snprintf(e->name, sizeof e->name, "%s", name);
    e->size_bytes = e->mapped_bytes = size_bytes;
    e->read_only = read_only;
    for (unsigned s = 0; s < STRIPES; s++)
        env_mutex_init(&e->stripes[s], m->env);
    m->exports[m->export_count++] = e;
}

void memory_exports_resize(struct memory_exports *m, const char *name, uint64_t size_bytes)
{
    env_mutex_lock(&m->lock);
    for (unsigned i = 0; i < m->export_count; i++) {
        if (strcmp(m->exports[i]->name, name) == 0) {
            CHECK_LE(size_bytes, m->exports[i]->mapped_bytes);
            m->exports[i]->size_bytes = size_bytes;
        }
    }
    env_mutex_unlock(&m->lock);
}

uint8_t *memory_exports_bytes(struct memory_exports *m, unsigned i)
{
    map_export(m->exports[i]);
    return m->exports[i]->bytes;
}

void memory_exports_fail(struct memory_exports *m, enum request_kind kind, int error, uint64_t offset, uint64_t length,
                         unsigned count)
{
    env_mutex_lock(&m->lock);
    int i = 0;
    while (i < FAULTS_MAX && m->faults[i].count > 0)
        i++;
    CHECK_LT(i, FAULTS_MAX);
    m->faults[i] = (struct fault){kind, error, offset, length, count};
    env_mutex_unlock(&m->lock);
}

void memory_exports_hold_runs(struct memory_exports *m, bool hold)
{
    env_mutex_lock(&m->lock);
    m->runs_held = hold;
    env_cond_broadcast(&m->changed);
    env_mutex_unlock(&m->lock);
}

void memory_exports_hold(struct memory_exports *m, bool hold)
{
    env_mutex_lock(&m->lock);
    m->held = hold;
    env_cond_broadcast(&m->changed);
    env_mutex_unlock(&m->lock);
}

void memory_exports_lie(struct memory_exports *m, bool lie)
{
    env_mutex_lock(&m->lock);
    m->lies = lie;
    env_mutex_unlock(&m->lock);
}

void memory_exports_get_counts(struct memory_exports *m, struct memory_counts *ret_counts)
{
    env_mutex_lock(&m->lock);
    *ret_counts = m->counts;
    env_mutex_unlock(&m->lock);
}
