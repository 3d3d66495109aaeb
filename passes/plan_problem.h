/* The intra-operator problem of one function, between its parts: plan_strategy.c lists what may be chosen,
 * plan_problem.c prices it, plan_memory.c says what it holds and when, plan_apply.c writes the choice into
 * the module.
 *
 * Variables (nodes of the solver's problem) are of two kinds:
 *
 *   holder  one per value: the sharding in which it is kept. Of a node without operands that is all there
 *           is; of a `view` or `slice` the holder *is* the node: its label is the node's strategy, and it
 *           lies in its operand's buffer whenever it can read the sharding kept there
 *   step    one per other node: its strategy
 *
 *       holder(x) --reshard kept -> read--> step(n) --reshard made -> kept--> holder(y)
 *
 * Points of time: a node k of the block has one point for each operand (its private reshard), one for its
 * execution and one for each result (the reshard to the kept sharding). */
#ifndef AP_PASSES_PLAN_PROBLEM_H
#define AP_PASSES_PLAN_PROBLEM_H

#include "ir/op.h"
#include "passes/batch.h"
#include "passes/plan.h"
#include "passes/reshard.h"
#include "passes/room.h"
#include "passes/solve/problem.h"

/* The different shardings of one operand or result over a step's strategies. */
typedef struct ap_plan_kinds {
    uint32_t n;
    ap_sharding *at;
    uint32_t *of; /* per strategy */
} ap_plan_kinds;

typedef struct ap_plan_step {
    ap_node node;
    uint32_t var; /* AP_NONE: a node without operands, or the terminator */
    bool view;    /* shares its operand's buffer */
    ap_rule rule;
    uint32_t n;
    ap_assign *assign; /* per strategy */
    ap_strategy *strategy;
    int64_t *cost;
    int64_t *inner_bytes; /* per strategy: held while it runs, of a composite that is cut and copies that a
                           * convolution may ask for; NULL: nothing */
    uint32_t first_point; /* of its operands; execution at first_point + nin */
} ap_plan_step;

typedef struct ap_plan_use {
    uint32_t step, slot;
} ap_plan_use;

typedef struct ap_plan_holder {
    ap_value value;
    uint32_t var;
    uint32_t step; /* that makes it; AP_NONE for arguments and symbols */
    bool view;     /* shares the variable of its step */
    bool resident; /* a symbol, a constant: held all the time */
    bool foreign;  /* an argument lies in the caller's memory, a number in its readers */
    bool pinned, returned;
    uint32_t n;
    ap_sharding *kept; /* per label */
    int64_t *bytes;    /* per label, aligned */
    uint32_t *end;     /* per label: first point at which its buffer is surely free */
    uint32_t nuses;    /* in order of steps, then slots */
    ap_plan_use *use;
} ap_plan_holder;

/* One edge of the problem, in the terms of the module. */
typedef struct ap_plan_edge {
    uint32_t holder, step;
    bool makes; /* step -> holder (its result `slot`); else holder -> step, all slots that read it */
    uint32_t slot;
    /* Paths between the kinds of that slot and the labels: [kind][label] of one that makes, else [label][kind]. */
    ap_plan_kinds kinds;
    const ap_reshard_path **path;
} ap_plan_edge;

typedef struct ap_planning {
    ap_ctx *ctx;
    ap_arena *arena;
    ap_module *m;
    const ap_plan_options *opt;
    ap_mesh mesh;
    const ap_batch *batch; /* NULL without time */
    ap_func func;
    ap_block block;
    ap_resharder *resharder;
    ap_rooms rooms;
    const bool *filled;  /* [value]: ap_filled_find */
    uint32_t *holder_of; /* per value: index into holders, AP_NONE */
    uint32_t npoints;
    uint32_t nstrategies;           /* of steps */
    AP_VEC(ap_plan_step) steps;     /* one per node of the block, in order */
    AP_VEC(ap_plan_holder) holders; /* symbols, arguments, then results in order */
    AP_VEC(ap_plan_edge) edges;     /* parallel to the problem's */
    AP_VEC(uint32_t) var_n;         /* strategies per variable */
    AP_VEC(const int64_t *) var_cost;
    AP_VEC(ap_problem_edge) problem_edges;
    AP_VEC(ap_demand) demands;
    AP_VEC(ap_pair_demand) pair_demands;
    ap_problem problem;
} ap_planning;

/* Of a normal module of one function: adds the mesh, finds the batch, sets physical extents and builds. */
ap_status ap_planning_open(ap_ctx *ctx, ap_arena *arena, ap_module *m, const ap_plan_options *opt, ap_planning *out);
/* The module has its mesh already and one function. `batch`: NULL without time. Fills `problem`; everything lives in
 * `arena`. */
ap_status ap_planning_build(ap_ctx *ctx, ap_arena *arena, ap_module *m, ap_mesh mesh, const ap_batch *batch,
                            const ap_plan_options *opt, ap_planning *out);
/* Its parts, in this order. */
ap_status ap_planning_list(ap_planning *p);
void ap_planning_price(ap_planning *p);
void ap_planning_demand(ap_planning *p);

/* Without the variables that the others decide when memory cannot bind (plan_reduce.c); arrays by variable. */
typedef struct ap_plan_reduced {
    ap_problem problem;
    bool *goes;
    uint32_t *number;      /* in `problem`; AP_NONE: goes */
    uint32_t *fixed;       /* the label of a free holder that goes */
    uint32_t *made, *read; /* edges of a holder that goes between its maker and its reader */
} ap_plan_reduced;
/* False when memory may bind: the whole problem must be solved. */
bool ap_planning_reduce(ap_planning *p, ap_plan_reduced *out);
/* Whatever the memory; variables with a flag in `stays` stay. */
void ap_planning_reduce_but(ap_planning *p, const bool *stays, ap_plan_reduced *out);
void ap_planning_expand(const ap_planning *p, const ap_plan_reduced *r, const uint32_t *choice, uint32_t *out);

/* All slots that a value kept like this is or fills; false when there are none. */
bool ap_planning_slots(const ap_planning *p, ap_value v, ap_sharding kept, ap_slot_price *out);

/* Quickly, with a gap (plan_priced.c). `done` is false when no price made a plan fit. */
ap_status ap_planning_priced(ap_planning *p, const ap_solve_options *options, int64_t price, ap_solution *out,
                             bool *out_done);

/* Moves a solution among those of equal cost to fewer bytes. */
void ap_planning_break_ties(ap_planning *p, uint32_t *choice);
/* Writes the shardings chosen into all types and inserts reshards; the module is then in state planned. */
ap_status ap_planning_apply(ap_planning *p, const uint32_t *choice);

/* The path made -> kept or kept -> read of a value; NULL when there is none. */
const ap_reshard_path *ap_planning_path(ap_planning *p, ap_value v, ap_sharding from, ap_sharding to);
/* Shardings of a step's operand (or result) `slot`, and paths from each of some shardings to each of others, row by
 * row. */
ap_plan_kinds ap_planning_kinds(ap_planning *p, const ap_plan_step *s, bool result, uint32_t slot);
const ap_reshard_path **ap_planning_paths(ap_planning *p, ap_value v, uint32_t nfrom, const ap_sharding *from,
                                          uint32_t nto, const ap_sharding *to);
/* The strategy of a view that reads the sharding kept in place; AP_NONE when it must read a reshard. */
uint32_t ap_plan_view_in_place(const ap_plan_step *view, ap_sharding kept);
/* The name of a value as the user knows it. */
const char *ap_planning_name(const ap_planning *p, ap_value v);

/* All assignments of a node on a mesh that the rule accepts, those with equal shardings once; axes of size 1 stay
 * unassigned, and time is on the batch, whatever its size. Each axis tries "nothing" first. Returns their number. */
uint32_t ap_strategies_list(const ap_module *m, ap_node n, ap_mesh mesh, const ap_batch *batch, ap_arena *arena,
                            ap_rule *rule, ap_assign **assign, ap_strategy **strategy);

/* Keeps of a value's labels those that the pins allow (flags per label); AP_ERR_USAGE when none is left. `matched`
 * has one flag per pin. */
ap_status ap_pins_filter(ap_planning *p, ap_value v, uint32_t n, const ap_sharding *kept, bool *keep, bool *out_pinned,
                         bool *matched);

#endif
