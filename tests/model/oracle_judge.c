/*
 * The oracle's judgement of what a store shows after a power cut: its list of volumes, and record by record whether one
 * set of whole operations explains what was read.
 *
 * The second is a search. A *column* is a sector of the record; what was read there names one or more versions of its
 * list (candidates). A choice of one candidate for each column is right if there is an order of the chosen operations
 * in which every chosen version is the last one of its column: for a column that chose c, any other chosen operation w
 * with a version in the column must come before c. It is impossible if w is known to come after c; and the wanted
 * orders together may have no cycle. Operations that no column chose need not have happened. Columns with the same
 * versions and the same candidates can choose the same, so only different ones are kept: a handful. The search is
 * bounded; the one that reaches the bound counts as right and is counted.
 */
#include "model/oracle_impl.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/math.h"
#include "format/limits.h"

#define COLUMNS_MAX 256
#define STEPS_MAX 20000

struct column {
    const struct sector *sector;
    uint64_t value;
    uint32_t candidates; /* how many */
    uint32_t choice;     /* index into the sector's list */
};

struct search {
    const struct oracle *o;
    struct column columns[COLUMNS_MAX];
    size_t count;
    unsigned steps;
};

static const struct version *column_choice(const struct column *c)
{
    return &c->sector->list[c->choice];
}

/* The other column's chosen operation also has a version in this column: must it come before this column's choice? */
static const struct version *column_version_of(const struct column *c, uint32_t operation)
{
    for (uint32_t k = 0; k < c->sector->count; k++)
        if (c->sector->list[k].operation == operation)
            return &c->sector->list[k];
    return NULL;
}

static bool pair_possible(const struct search *s, const struct column *a, const struct column *b)
{
    const struct version *mine = column_choice(a);
    uint32_t other = column_choice(b)->operation;
    const struct version *w = other == mine->operation ? NULL : column_version_of(a, other);
    return w == NULL || !version_before(s->o, mine, w);
}

/*
 * edge[i][j]: the operation chosen by column i comes before that of column j: it ended before the other began, or the
 * other's version lies over it. Columns that chose one operation stand for one node of the order: an edge from one of
 * them counts for all.
 */
static bool order_exists(const struct search *s)
{
    static bool edge[COLUMNS_MAX][COLUMNS_MAX];
    for (size_t i = 0; i < s->count; i++)
        for (size_t j = 0; j < s->count; j++) {
            uint32_t a = column_choice(&s->columns[i])->operation, b = column_choice(&s->columns[j])->operation;
            const struct operation *x = &s->o->operations[a], *y = &s->o->operations[b];
            edge[i][j] = a != b && (x->end < y->start || column_version_of(&s->columns[j], a) != NULL);
        }
    for (size_t i = 0; i < s->count; i++)
        for (size_t j = 0; j < s->count; j++)
            for (size_t k = 0; k < s->count && !edge[i][j]; k++) {
                bool same = column_choice(&s->columns[k])->operation == column_choice(&s->columns[i])->operation;
                edge[i][j] = same && edge[k][j];
            }
    for (size_t k = 0; k < s->count; k++)
        for (size_t i = 0; i < s->count; i++)
            for (size_t j = 0; j < s->count && edge[i][k]; j++)
                edge[i][j] = edge[i][j] || edge[k][j];
    for (size_t i = 0; i < s->count; i++)
        for (size_t j = 0; j < s->count; j++)
            if (edge[i][j] && column_choice(&s->columns[i])->operation == column_choice(&s->columns[j])->operation)
                return false;
    return true;
}

/* Chooses for column `at` and the ones after it. */
static bool search_from(struct search *s, size_t at)
{
    if (at == s->count)
        return order_exists(s);
    if (++s->steps > STEPS_MAX)
        return true;
    struct column *c = &s->columns[at];
    for (uint32_t k = 0; k < c->sector->count; k++) {
        if (c->sector->list[k].value != c->value)
            continue;
        c->choice = k;
        bool possible = true;
        for (size_t i = 0; i < at && possible; i++)
            possible = pair_possible(s, c, &s->columns[i]) && pair_possible(s, &s->columns[i], c);
        if (possible && search_from(s, at + 1))
            return true;
    }
    return false;
}

/* The same versions in the list, and the same of them are candidates. */
static bool columns_alike(const struct column *a, const struct column *b)
{
    if (a->sector->count != b->sector->count)
        return false;
    for (uint32_t k = 0; k < a->sector->count; k++) {
        const struct version *x = &a->sector->list[k], *y = &b->sector->list[k];
        if (x->operation != y->operation || x->start != y->start || (x->value == a->value) != (y->value == b->value))
            return false;
    }
    return true;
}

static void search_add(struct search *s, struct column c)
{
    for (size_t i = 0; i < s->count; i++)
        if (columns_alike(&s->columns[i], &c))
            return;
    CHECK_LT(s->count, COLUMNS_MAX);
    size_t at = s->count++;
    while (at > 0 && s->columns[at - 1].candidates > c.candidates) { /* the fewest candidates first */
        s->columns[at] = s->columns[at - 1];
        at--;
    }
    s->columns[at] = c;
}

static void record_complain(const struct search *s, unsigned volume, uint64_t record, struct text *why)
{
    text_printf(why, "after the cut volume %u record %llu: no set of whole operations explains it:", volume,
                (unsigned long long)record);
    for (size_t i = 0; i < s->count; i++) {
        const struct column *c = &s->columns[i];
        text_printf(why, " [read %016llx of", (unsigned long long)c->value);
        for (uint32_t k = 0; k < c->sector->count; k++)
            text_printf(why, " %u%s", c->sector->list[k].operation, c->sector->list[k].value == c->value ? "*" : "");
        text_printf(why, "]");
    }
}

/* Sectors [first, end) are one record. */
static bool record_check(struct oracle *o, unsigned volume, const uint64_t *values, uint64_t first, uint64_t end,
                         struct text *why)
{
    static struct search s;
    s = (struct search){.o = o};
    const struct oracle_volume *v = &o->volumes[volume];
    for (uint64_t i = first; i < end; i++) {
        struct column c = {.sector = &v->sectors[i], .value = values[i]};
        if (c.sector->count == 1 || c.value == ORACLE_LOST)
            continue;
        for (uint32_t k = 0; k < c.sector->count; k++)
            c.candidates += c.sector->list[k].value == c.value;
        search_add(&s, c);
    }
    if (s.count < 2)
        return true;
    bool good = search_from(&s, 0);
    if (good && s.steps > STEPS_MAX)
        o->undecided++;
    if (!good)
        record_complain(&s, volume, first / (v->record_bytes / SECTOR_BYTES), why);
    return good;
}

bool oracle_check_volume(struct oracle *o, unsigned volume, const uint64_t *values, uint64_t count, bool lost_allowed,
                         struct text *why)
{
    CHECK_LT(volume, ORACLE_VOLUMES);
    const struct oracle_volume *v = &o->volumes[volume];
    CHECK_LE(count, v->sector_count);
    for (uint64_t i = 0; i < count; i++) {
        const struct sector *s = &v->sectors[i];
        bool good = lost_allowed && values[i] == ORACLE_LOST;
        for (uint32_t k = 0; k < s->count && !good; k++)
            good = s->list[k].value == values[i];
        if (good)
            continue;
        text_printf(why, "after the cut volume %u sector %llu: value %016llx is not allowed; allowed:", volume,
                    (unsigned long long)i, (unsigned long long)values[i]);
        for (uint32_t k = 0; k < s->count; k++) {
            const struct operation *op = &o->operations[s->list[k].operation];
            text_printf(why, " %016llx of operation %u (%s)", (unsigned long long)s->list[k].value,
                        s->list[k].operation,
                        op->durable             ? "durable"
                        : op->failed            ? "failed"
                        : op->end == TIME_NEVER ? "under way"
                                                : "acknowledged");
        }
        oracle_tell_sector(o, volume, i, why);
        return false;
    }
    uint64_t record_sectors = v->record_bytes / SECTOR_BYTES;
    for (uint64_t i = 0; i < count; i += record_sectors)
        if (!record_check(o, volume, values, i, min_u64(i + record_sectors, count), why))
            return false;
    return true;
}

/* Could volume v be called that, with that size? */
static bool volume_matches(const struct oracle_volume *v, const struct oracle_found *found)
{
    if (!v->exists && v->pending != PENDING_CREATE)
        return false;
    bool name =
        strcmp(found->name, v->name) == 0 || (v->pending == PENDING_RENAME && strcmp(found->name, v->new_name) == 0);
    bool size =
        found->size_bytes == v->size_bytes || (v->pending == PENDING_RESIZE && found->size_bytes == v->new_size_bytes);
    return name && size && found->record_bytes == v->record_bytes;
}

bool oracle_check_catalog(const struct oracle *o, struct oracle_found *list, size_t count, struct text *why)
{
    bool met[ORACLE_VOLUMES] = {0};
    for (size_t i = 0; i < count; i++) {
        list[i].volume = -1;
        for (int v = 0; v < ORACLE_VOLUMES && list[i].volume < 0; v++)
            if (!met[v] && volume_matches(&o->volumes[v], &list[i]))
                list[i].volume = v;
        if (list[i].volume < 0) {
            text_printf(why, "volume \"%s\" of %llu bytes, records of %u bytes, may not exist", list[i].name,
                        (unsigned long long)list[i].size_bytes, list[i].record_bytes);
            return false;
        }
        met[list[i].volume] = true;
    }
    for (size_t v = 0; v < ORACLE_VOLUMES; v++)
        if (!met[v] && o->volumes[v].exists && o->volumes[v].pending != PENDING_DESTROY) {
            text_printf(why, "volume \"%s\" of %llu bytes is gone", o->volumes[v].name,
                        (unsigned long long)o->volumes[v].size_bytes);
            return false;
        }
    return true;
}
