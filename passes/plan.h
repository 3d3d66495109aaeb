/* normal -> planned: the intra-operator problem (DESIGN §7). */
#ifndef AP_PASSES_PLAN_H
#define AP_PASSES_PLAN_H

#include "passes/cluster.h"
#include "passes/pass.h"

/* `value PATTERN SHARDING`, `value PATTERN forbid AXIS`; patterns are shell globs over value and node names. */
typedef struct ap_pin {
    const char *pattern;
    const char *sharding; /* NULL: forbid */
    const char *forbid;   /* axis name */
    int line;
} ap_pin;

/* `node PATTERN stage=K`: for who cuts the model into stages (passes/pipe/pins.h). */
typedef struct ap_node_pin {
    const char *pattern;
    uint32_t stage;
    int line;
} ap_node_pin;

/* A boundary value of a pipeline, on this side. */
typedef struct ap_plan_slot {
    ap_name name;
    bool result;   /* of the function; else an argument */
    int32_t depth; /* so many of it are held, all the time */
    /* What it takes to have it in this (complete) sharding, per microbatch: the time of its transfer. AP_FORBIDDEN: it
     * cannot be. NULL: nothing. Equal types, equal times, whatever the padding of factors that nothing splits. */
    int64_t (*cost)(void *user, const ap_module *m, ap_type type);
    void *user;
} ap_plan_slot;
/* Slots that are not listed are held once and cost nothing. */
typedef struct ap_plan_slots {
    uint32_t n;
    const ap_plan_slot *at;
} ap_plan_slots;

/* Bytes and time of slots; AP_FORBIDDEN: that cannot be. */
typedef struct ap_slot_price {
    int64_t bytes, ps;
} ap_slot_price;
/* Adds what one slot of this type takes. */
void ap_slot_price_add(const ap_plan_slots *slots, const ap_module *m, ap_name name, bool result, ap_type type,
                       ap_slot_price *sum);

typedef struct ap_plan_options {
    ap_cluster cluster;
    ap_mesh_info mesh;    /* with time: the plan is of one microbatch */
    const int8_t *batch;  /* with time: per argument of the function its factor that is the batch (passes/batch.h) */
    int64_t batch_extent; /* with time: physical extent of the batch, in all stages the same; 0: what suits the mesh */
    int64_t memory;       /* bytes per device; 0: the cluster's */
    uint32_t npins;
    const ap_pin *pin;
    const char *pin_file; /* for messages */
    bool *pin_matched;    /* NULL: a pin that matches no value is an error; else a flag for each that does (stages) */
    ap_plan_slots slots;
    uint32_t stage; /* the function becomes @stage0.fwd, ... */
    bool split_force;
    double time_limit;        /* seconds; 0: none */
    int64_t budget;           /* of the solver's work; 0: the usual */
    uint32_t threads;         /* of the solver; 0: one. The plan does not depend on it */
    int64_t memory_price;     /* 0, or ps per MiB: a guess where the search for a price of parameters begins, which then
                               * takes the place of the solver (quick, with a gap; plan_priced.c) */
    const char *problem_path; /* NULL, or where the problem is written before it is solved (docs/solver.md) */
} ap_plan_options;

typedef struct ap_plan_result {
    int64_t cost_ps, bound_ps;            /* predicted time of one run (microbatch); proven lower bound */
    int64_t compute_ps, communication_ps; /* parts of cost_ps */
    int64_t transfer_ps;                  /* the rest of cost_ps: of slots that cost something */
    int64_t peak_bytes, param_bytes;      /* per device; parameters counted in peak */
    int64_t slot_bytes;                   /* of all slots, counted in peak */
    double planning_seconds, solver_seconds;
    double flops;                          /* of contractions, of one microbatch on all devices */
    double sharded_flops_fraction;         /* of contraction FLOPs, how much is divided by the devices */
    uint32_t variables, strategies, edges; /* of the ILP, before presolve */
    const char *proof;                     /* "elimination", "branch and cut" ... */
} ap_plan_result;

/* Adds the mesh, chooses, sets every type and inserts reshards. AP_ERR_NO_PLAN says what does not fit and by how much.
 */
ap_status ap_pass_plan(ap_ctx *ctx, ap_module *m, const ap_plan_options *opt, ap_plan_result *out);

/* Prices a planned module from its types alone: shares no code with the problem's construction, only the cost
 * functions. */
ap_status ap_plan_evaluate(ap_ctx *ctx, ap_module *m, const ap_cluster *c, ap_plan_result *out);
/* With slots that have depths and costs. */
ap_status ap_plan_evaluate_slots(ap_ctx *ctx, ap_module *m, const ap_cluster *c, const ap_plan_slots *slots,
                                 ap_plan_result *out);
/* And node by node: what each node of the function takes, in order. `watch` may be NULL. */
typedef struct ap_plan_watch {
    void (*see)(void *user, ap_node n, int64_t compute_ps, int64_t communication_ps);
    void *user;
} ap_plan_watch;
ap_status ap_plan_evaluate_nodes(ap_ctx *ctx, ap_module *m, const ap_cluster *c, const ap_plan_slots *slots,
                                 const ap_plan_watch *watch, ap_plan_result *out);
/* planned -> explicit with the paths that are cheapest on the plan's cluster (ap_pass_explicit: on this machine). */
ap_status ap_explicit_run(ap_ctx *ctx, ap_module *m, const ap_cluster *c);
/* A file of pins: those of values, those of nodes. */
typedef struct ap_pins {
    uint32_t n, nnodes;
    const ap_pin *pin;
    const ap_node_pin *node;
    /* What the model's file has, whatever became of it: a pin of what was computed on import pins nothing, and is none
     * that matches nothing. May be NULL. */
    uint32_t norigins;
    const ap_origin *origin;
} ap_pins;
ap_status ap_pins_read(ap_ctx *ctx, const char *path, ap_pins *out);

/* Turns a planned module back into the normal one that it was made from, its function named `func_name`. */
void ap_module_erase_plan(ap_module *m, ap_name func_name);

#endif
