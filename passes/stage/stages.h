/* Which layers, on which devices: the inter-operator problem of DESIGN §8 in numbers only. It knows no graph, no
 * operator and no sharding; layers, choices and labels are indices.
 *
 * A model is `nlayers` layers in a row; boundary b lies before layer b, boundary nlayers at the end. A pipeline cuts
 * the row into stages. A stage has a *choice*: a sub-mesh of a group of equal hosts, seen in one way, with one price
 * for memory; and labels (shardings) at its two boundaries. With t the time of one microbatch in a stage and c the
 * time of one transfer to the next stage,
 *
 *     T = sum t_i + sum c_i + (B - 1) * max_i max(t_i, c_i)        (latency: B = 1 in this formula)
 *
 * (Zheng et al., "Alpa", OSDI 2022, equations 2 to 4, with transfers.) The time of a range of layers is the min-plus
 * product of the tables of its layers, so ranges cost no solver.
 *
 * Sub-meshes are m devices of one host, or n whole hosts. Stages fill the hosts of a group in pipeline order: one
 * host is open at a time, a stage that needs a part of a host gets the next devices of the open one, whole hosts are
 * taken beside it. Where a row of stages does not fit in that way but its sub-meshes tile the hosts in some order,
 * ap_stages_place packs them; the search prices their transfers as if no two parts shared a host (see
 * ap_stages_plan.packed), and the plan's time is that of its real placement. */
#ifndef AP_PASSES_STAGE_STAGES_H
#define AP_PASSES_STAGE_STAGES_H

#include "ir/base/ctx.h"

#define AP_STAGES_NONE INT64_MAX /* a time: not possible */

/* Equal hosts. Ranks count group after group, host after host. */
typedef struct ap_stages_group {
    int32_t hosts, devices; /* per host */
    int64_t capacity;       /* bytes of a device */
} ap_stages_group;

typedef struct ap_stages_choice {
    uint32_t group;
    int32_t hosts, devices; /* of the sub-mesh, per host; hosts > 1 only with all devices of a host */
    int64_t price;          /* ps per MiB held by parameters: chooses labels inside a range, is not part of T */
} ap_stages_choice;

/* How near two stages lie. */
typedef enum ap_near { AP_NEAR_HOST, AP_NEAR_HOSTS, AP_NEAR_GROUPS, AP_NEAR_COUNT } ap_near;

/* One layer under one choice, [in label][out label], row-major. */
typedef struct ap_stages_table {
    const int64_t *time;     /* ps per microbatch; AP_STAGES_NONE: not possible */
    const int64_t *resident; /* bytes of parameters; NULL: none */
    const int64_t *peak;     /* bytes of the rest at its highest, without the boundary values that are slots of the
                                stage; NULL: none */
} ap_stages_table;

typedef struct ap_stages_problem {
    uint32_t nlayers, nchoices, ngroups;
    const ap_stages_group *group;
    const ap_stages_choice *choice;
    const uint32_t *nlabels;      /* [boundary * nchoices + choice], boundaries 0..nlayers; 0: choice has no table */
    const ap_stages_table *table; /* [layer * nchoices + choice]; may share arrays */
    const int64_t *const *slot;   /* [boundary * nchoices + choice][label]: bytes of one slot; NULL (entry or all): 0 */
    int32_t in_depth, out_depth;  /* slots that a stage keeps of what it gets and of what it sends; also at the ends
                                     of the model, where slot bytes are whatever the caller says */
    /* ps of one microbatch's transfer between stages at a boundary, or AP_STAGES_NONE. Between hosts it is taken as at
     * least that on one host; AP_NEAR_HOST is asked for only where both can lie on one. Called once per combination
     * and class of boundary (boundary_class[b], or NULL: each its own), and again where plans are evaluated. */
    int64_t (*transfer)(void *user, uint32_t boundary, uint32_t from, uint32_t out, uint32_t to, uint32_t in,
                        ap_near near);
    void *user;
    const uint32_t *boundary_class;
    int32_t microbatches;     /* B >= 1; 1 is also the latency objective */
    uint32_t nstages;         /* exactly so many; 0: as many as are best */
    const int8_t *cut;        /* per boundary: 1 stages meet here, -1 they do not, 0 free; NULL: all free */
    const uint32_t *stage_of; /* per layer: stage that has it, or AP_NONE; NULL: all free */
} ap_stages_problem;

typedef struct ap_stages_options {
    uint32_t nplans; /* how many plans are wanted, the best first; 0 counts as 1 */
    int64_t eps;     /* ps: the best plan may be this much longer than the optimum (0: exact) */
    uint64_t work;   /* steps of the enumeration of plans behind the best; 0: a default */
    bool idle;       /* devices may stay without work (else: only if no plan uses all) */
} ap_stages_options;

typedef struct ap_stages_pick {
    uint32_t first, last; /* layers [first, last) */
    uint32_t choice, in, out;
    int32_t device;         /* the first one, within its group */
    int32_t rank;           /* the same within the cluster */
    int64_t time, transfer; /* of a microbatch; to the next stage (0 for the last) */
    int64_t memory;         /* bytes of each device, slots included */
} ap_stages_pick;

typedef struct ap_stages_plan {
    uint32_t nstages;
    ap_stages_pick *stage;
    int64_t total;           /* T of this placement */
    int64_t sum, bottleneck; /* sum of t and c; max of t and c */
    bool packed;             /* not in pipeline order: see above */
} ap_stages_plan;

typedef struct ap_stages_result {
    uint32_t nplans;      /* 0: no plan. Plans differ in cuts or choices; each has the best labels */
    ap_stages_plan *plan; /* the best first */
    int64_t bound;        /* no plan in the model of the search is shorter than this; total - bound <= eps */
    bool idle;            /* some devices have no work: no plan uses all, or options.idle */
    bool ranked;          /* the plans behind the best are the next best ones; false: `work` was spent */
    int64_t missing;      /* no plan: bytes per device that, added to every capacity, would give one;
                             AP_STAGES_NONE: none would */
    uint32_t trials;      /* bottlenecks tried */
} ap_stages_result;

/* AP_ERR_USAGE: the problem contradicts itself (sub-meshes that no host has, times of more than 80 hours, too many
 * devices times groups, ...). That no plan exists is AP_OK with nplans == 0. Everything lies in the arena. */
ap_status ap_stages_solve(ap_ctx *ctx, ap_arena *arena, const ap_stages_problem *p, const ap_stages_options *opt,
                          ap_stages_result *out);

/* Gives each stage (choice and order are read) its `device` and `rank`: in pipeline order if that fits, else packed
 * with neighbours on one host where possible. False: the sub-meshes do not tile the hosts. */
bool ap_stages_place(ap_arena *scratch, const ap_stages_problem *p, ap_stages_pick *stage, uint32_t nstages,
                     bool *out_packed);

/* How near two placed stages lie. */
ap_near ap_stages_near(const ap_stages_problem *p, const ap_stages_pick *a, const ap_stages_pick *b);

/* Independent of the search: checks cover, pins, capacity, placement and that all devices work (unless idle), and
 * computes times, memory, sum, bottleneck and total anew in 128-bit integers. NULL, or what is wrong. */
const char *ap_stages_evaluate(ap_arena *scratch, const ap_stages_problem *p, ap_stages_plan *plan, bool idle);

/* The labels inside a stage, last - first + 1 of them, its ends included: those of the fastest way (time + price of
 * residents; ties: less time, less resident, less peak, lower labels). False: there is none. */
bool ap_stages_labels(ap_arena *scratch, const ap_stages_problem *p, const ap_stages_pick *s, uint32_t *out);

/* Sub-mesh shapes of a group: (1, m) for every m that divides `devices` (the powers of two, if it is one), then
 * (n, devices) for n = 2..hosts. Returns how many; writes at most `cap`. */
typedef struct ap_stages_shape {
    int32_t hosts, devices;
} ap_stages_shape;
uint32_t ap_stages_shapes(int32_t hosts, int32_t devices, ap_stages_shape *out, uint32_t cap);

/* Logical views rows x columns of a sub-mesh, rows * columns = its devices, columns the faster axis: all of them, or
 * with `inside`, those whose columns stay inside a host. 1 x n comes first, then ascending rows. */
typedef struct ap_stages_view {
    int32_t rows, columns;
} ap_stages_view;
uint32_t ap_stages_views(ap_stages_shape s, bool inside, ap_stages_view *out, uint32_t cap);

#endif
