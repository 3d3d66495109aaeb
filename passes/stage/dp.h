/* The inside of the search over stages (stages.h): ranges of layers, devices in use as one index, transfers between
 * classes of labels, and the DP for one bound on the bottleneck. */
#ifndef AP_PASSES_STAGE_DP_H
#define AP_PASSES_STAGE_DP_H

#include "passes/solve/minplus.h"
#include "passes/stage/stages.h"

/* Not possible; every sum of times that counts is at most AP_STAGES_LONGEST, so the sum of both still fits. */
#define AP_STAGES_INF ((int64_t)1 << 60)
#define AP_STAGES_LONGEST ((int64_t)1 << 58)
enum { AP_STAGES_MAX_STATES = 1 << 16 };

/* A way through a range of layers: best by key, then time, resident, peak. key == AP_STAGES_NONE: there is none. */
typedef struct ap_stages_way {
    int64_t key, time, resident, peak;
} ap_stages_way;

bool ap_stages_way_less(const ap_stages_way *a, const ap_stages_way *b);
/* One layer under one choice and pair of labels, and one way after the other. */
ap_stages_way ap_stages_way_of(const ap_stages_problem *p, uint32_t layer, uint32_t choice, uint32_t in, uint32_t out);
ap_stages_way ap_stages_way_join(const ap_stages_way *a, const ap_stages_way *b);
int64_t ap_stages_slot_bytes(const ap_stages_problem *p, uint32_t boundary, uint32_t choice, uint32_t label);

/* Time and memory of every range of layers, and of stages made of them. */
typedef struct ap_stages_ranges {
    size_t *at;             /* [(choice * L + first) * L + last - 1]: where its labels begin, [in][out] */
    int64_t *time, *memory; /* AP_STAGES_INF: none; slots included */
    int64_t *usable;        /* time, or AP_STAGES_INF where memory exceeds the capacity */
    size_t size;
} ap_stages_ranges;

ap_status ap_stages_ranges_make(ap_ctx *ctx, ap_arena *arena, const ap_stages_problem *p, ap_stages_ranges *out);
void ap_stages_ranges_fit(const ap_stages_problem *p, ap_stages_ranges *r);

static inline size_t ap_stages_range(const ap_stages_problem *p, const ap_stages_ranges *r, uint32_t choice,
                                     uint32_t first, uint32_t last)
{
    return r->at[((size_t)choice * p->nlayers + first) * p->nlayers + last - 1];
}

/* Behind the last number of a choice. */
static inline size_t ap_stages_ranges_end(const ap_stages_problem *p, const ap_stages_ranges *r, uint32_t choice)
{
    return choice + 1 < p->nchoices ? ap_stages_range(p, r, choice + 1, 0, 1) : r->size;
}

/* Devices in use, in units of the greatest common divisor of what a group's sub-meshes take, as one index
 * u = sum over groups of used * stride. */
typedef struct ap_stages_axis {
    uint32_t unit, host, all; /* devices per unit; units of a host and of the group */
    uint32_t stride;
} ap_stages_axis;

/* Transfers at one class of boundaries. Rows are (choice, out label), columns (choice, in label). Those that agree in
 * all prices are one class, and the DP has one row of numbers for it. */
typedef struct ap_stages_transfers {
    uint32_t rows, row_classes, column_classes;
    int64_t *open, *closed; /* [row * rows + column]: onto the open host, if both can be there; elsewhere */
    uint32_t *row_class, *column_class;
    uint32_t *row_first, *column_first; /* per class: its first member */
    bool *row_open;                     /* per class: `open` differs from `closed` */
} ap_stages_transfers;

/* Hosts of one group in pipeline order: `open` has `fill` devices in use, those from `next` on are empty. */
typedef struct ap_stages_host {
    int32_t next, open, fill;
} ap_stages_host;
void ap_stages_hosts_clear(const ap_stages_problem *p, ap_stages_host *host); /* [group] */
/* Gives the next stage its device and rank. False: it does not fit. */
bool ap_stages_hosts_take(const ap_stages_problem *p, ap_stages_host *host, ap_stages_pick *s);

/* How the sub-meshes of a plan lie: see stages.h. */
typedef enum ap_stages_family { AP_STAGES_IN_ORDER, AP_STAGES_PACKED } ap_stages_family;

/* A stage that fits into memory, among those with the same first layer, choice and in label: how long it takes, where
 * it ends, and the class of its out label there. */
typedef struct ap_stages_end {
    int64_t time;
    uint32_t last, row;
} ap_stages_end;

typedef struct ap_stages_dp {
    const ap_stages_problem *p;
    ap_stages_ranges *ranges;
    ap_stages_family family;
    bool idle;
    ap_stages_axis *axis;        /* per group */
    uint32_t states, ld;         /* values of u; the same padded */
    uint32_t *shift;             /* per choice: added to u */
    bool *part;                  /* per choice: less than a host */
    uint8_t *fits;               /* [choice * ld + u] */
    uint8_t *open;               /* [group * ld + u]: a host is partly used */
    uint32_t *row_at;            /* [boundary * nchoices + choice]: its first label among the rows of the boundary */
    uint32_t *rows;              /* per boundary */
    uint32_t classes, *class_of; /* of transfers; and the one of each boundary between layers */
    ap_stages_transfers *transfers;
    size_t *end_at;      /* per row of all boundaries, one after the other: its first one in `end` */
    uint32_t *choice_of; /* per row likewise */
    ap_stages_end *end;  /* by row, the shortest first */
    uint32_t *next_cut;  /* per boundary b: the first one > b where stages must meet, or nlayers */
    uint32_t levels;     /* stages told apart by their number; the last stands for all later ones unless... */
    bool exact_levels;   /* ... their number is given */
    /* per (level, boundary): */
    size_t *start_at, *rest_at; /* first row in start and in rest */
    /* Least sum of times from here on, where no time exceeds the bound of the last ap_stages_dp_run: a stage with
     * this choice and in label begins here / a stage with this choice and out label has ended here. [row][u] */
    int64_t *start, *rest;
    bool *start_alive, *rest_alive; /* per row: some u is possible */
    ap_minplus_fn *product;         /* min-plus; min-max in ap_stages_dp_bottlenecks */
    /* scratch */
    int64_t *term, *merged, *other;
    uint32_t *term_row;
    bool *merged_alive, *may_end;
} ap_stages_dp;

/* What contradicts itself in groups and choices: AP_ERR_USAGE. */
ap_status ap_stages_check(ap_ctx *ctx, const ap_stages_problem *p);
ap_status ap_stages_dp_make(ap_ctx *ctx, ap_arena *arena, const ap_stages_problem *p, ap_stages_ranges *r,
                            ap_stages_family family, bool idle, ap_stages_dp *out);
/* The least sum of t and c over all plans where none of them exceeds `most`; AP_STAGES_INF: there is none. */
int64_t ap_stages_dp_run(ap_stages_dp *d, int64_t most);
int64_t ap_stages_dp_least(const ap_stages_dp *d); /* what the last run found */
/* After a run that found one: its stages (nlayers of them at most) with times and transfers; in the packed family
 * without devices. host: scratch, per group. */
uint32_t ap_stages_dp_path(const ap_stages_dp *d, int64_t most, ap_stages_host *host, ap_stages_pick *out);

/* A twin of d whose numbers are least bottlenecks instead of least sums; made and run once. */
void ap_stages_dp_bottlenecks(ap_arena *arena, const ap_stages_dp *d, ap_stages_dp *out);
ap_minplus_fn *ap_minmax_get(void);

uint32_t ap_stages_next_level(const ap_stages_dp *d, uint32_t level); /* AP_NONE: no stage follows */
/* Whether stages may be made of these layers, the first being stage `level`. */
bool ap_stages_may_be(const ap_stages_dp *d, uint32_t level, uint32_t first, uint32_t last);
/* Whether stage `level` may start before layer `first`: as many layers as stages at least are before it, and, when
 * their number is given, from it on. */
bool ap_stages_may_start(const ap_stages_dp *d, uint32_t level, uint32_t first);
static inline bool ap_stages_may_cut(const ap_stages_problem *p, uint32_t boundary)
{
    return boundary == p->nlayers || p->cut == NULL || p->cut[boundary] >= 0;
}
/* Units of a group in use. */
static inline uint32_t ap_stages_used(const ap_stages_dp *d, uint32_t group, uint32_t u)
{
    return u / d->axis[group].stride % (d->axis[group].all + 1);
}
/* The same with the open host closed. */
uint32_t ap_stages_close(const ap_stages_dp *d, uint32_t group, uint32_t u);
/* Price of a transfer when `u` is in use after the sender's stage. */
int64_t ap_stages_dp_transfer(const ap_stages_dp *d, uint32_t boundary, uint32_t u, uint32_t from, uint32_t out,
                              uint32_t to, uint32_t in);
static inline int64_t *ap_stages_start_row(const ap_stages_dp *d, uint32_t level, uint32_t boundary, uint32_t choice,
                                           uint32_t in)
{
    const ap_stages_problem *p = d->p;
    size_t row = d->start_at[(size_t)level * (p->nlayers + 1) + boundary];
    return d->start + (row + d->row_at[(size_t)boundary * p->nchoices + choice] + in) * d->ld;
}
int64_t *ap_stages_rest_row(const ap_stages_dp *d, uint32_t level, uint32_t boundary, uint32_t choice, uint32_t out);

bool ap_stages_share_host(const ap_stages_problem *p, uint32_t a, uint32_t b); /* can the two choices? */
/* What a transfer costs, never less than between nearer stages. */
int64_t ap_stages_price(const ap_stages_problem *p, uint32_t boundary, uint32_t from, uint32_t out, uint32_t to,
                        uint32_t in, ap_near near);
bool ap_stages_place_in_order(ap_arena *scratch, const ap_stages_problem *p, ap_stages_pick *stage, uint32_t n);
bool ap_stages_place_packed(ap_arena *scratch, const ap_stages_problem *p, ap_stages_pick *stage, uint32_t n);

/* labels.c: the best labels of a plan whose cuts, choices and devices are given; fills in, out, times, memory, sum,
 * bottleneck, total. False: it has none (or takes over 106 days). */
bool ap_stages_best_labels(ap_arena *scratch, const ap_stages_problem *p, const ap_stages_ranges *r,
                           ap_stages_plan *plan);

/* pool.c: the best plans so far, without two of the same cuts and choices. */
typedef struct ap_stages_pool {
    ap_arena *arena;
    const ap_stages_problem *p;
    const ap_stages_ranges *ranges;
    uint32_t wanted, n;
    ap_stages_plan *plan; /* ascending */
} ap_stages_pool;

void ap_stages_pool_init(ap_stages_pool *pool, ap_arena *arena, const ap_stages_problem *p, const ap_stages_ranges *r,
                         uint32_t wanted);
/* Stages with cuts, choices and devices; finds their labels. */
void ap_stages_pool_add(ap_stages_pool *pool, ap_arena *scratch, const ap_stages_pick *stage, uint32_t n, bool packed);
/* A plan must be shorter than this to get in; INT64_MAX while there is room. */
int64_t ap_stages_pool_cutoff(const ap_stages_pool *pool);

/* rank.c: adds the next best plans in pipeline order. sum: the least one over all plans. False: `work` steps were spent
 * before all had been seen. */
bool ap_stages_rank(ap_stages_dp *d, ap_stages_pool *pool, int64_t sum, uint64_t work);

#endif
