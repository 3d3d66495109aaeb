/* What printers must know of a loop nest, in whatever language they print (DESIGN §10).
 *
 *     outer loops {
 *         section 0: statements once, or inner loops { statements }
 *         section 1: ...
 *     }
 *
 * Each operation has a *level*: how many of the loops around it must be open for its value to be known. What needs
 * fewer outer loops than there are is done further out, and so is the check of an index that does not change in the
 * loop that becomes vector code.
 *
 * Rows that lie across memory (reductions over leading dimensions, statistics of channels-last values) are done
 * otherwise: an outer loop along which memory is walked by ones becomes the innermost one of every section, the *lane*.
 * It is cut into blocks, and what is one number per row elsewhere is an array of a block there:
 *
 *     other outer loops, for blocks of the lane {
 *         row section       for lane { statements }
 *         inner section     for inner loops { for lane { statements; s[lane] += ... } }
 *     } */
#ifndef AP_BACKEND_NEST_H
#define AP_BACKEND_NEST_H

#include "ir/program.h"

/* Bytes of row temporaries that may lie on the stack. */
#define AP_NEST_STACK_BYTES 16384

typedef struct ap_nest_facts {
    const ap_program *program; /* for calls of the kernel; all borrowed */
    const ap_kernel *k;
    const ap_nest *n;
    bool *live;          /* per sop: something depends on it */
    uint8_t *level;      /* per sop */
    int64_t inner_count; /* turns of the inner loops together */
    bool has_inner;      /* some section has them */
} ap_nest_facts;

/* Arrays in `arena`. */
ap_nest_facts ap_nest_find(ap_arena *arena, const ap_program *program, const ap_kernel *k);

/* ---- operations ---- */

int ap_sop_argument_count(const ap_sop *s);
/* Finds its element by an index that must be in range: GATHER, UPDATE with a row. */
bool ap_sop_has_row(const ap_sop *s);
uint32_t ap_sop_row_index(const ap_sop *s); /* the sop that is the index */
bool ap_sop_is_argument_index(const ap_sop *s);
bool ap_sop_is_sum(const ap_sop *s);     /* of REDUCE and SCAN: sum or product */
bool ap_sop_is_largest(const ap_sop *s); /* max or argmax */

/* Type in which a fold of `count` elements runs: that of a register for max and min; integer sums wrap in 64 bits,
 * sums of more floats than `most` go in double. */
typedef enum ap_fold_type { AP_FOLD_REGISTER, AP_FOLD_DOUBLE, AP_FOLD_U64 } ap_fold_type;
ap_fold_type ap_nest_fold_type(const ap_nest *n, const ap_sop *s, int64_t count, int64_t most);
enum { AP_NEST_LONG_SUM = 4096, AP_LANES_LONG_SUM = 1024 }; /* `most` of rows and of lanes */
/* What it starts from; `f` or `i` as for a constant of the type of its argument. */
ap_scalar ap_nest_fold_start(const ap_nest *n, const ap_sop *s);

/* ---- loops ---- */

int64_t ap_nest_inner_count(const ap_nest *n); /* saturates */
int ap_nest_section_loops(const ap_nest *n, int section);
/* 1 + the innermost of the first `loops` loops that has a stride, or 0. */
int ap_nest_last_loop(const int64_t *stride, int loops);
/* Strides of the row-major position within the inner loops. */
void ap_nest_inner_strides(const ap_nest *n, int64_t stride[AP_MAX_LOOPS]);
/* May the iterations of loop l of a section (< 0: of all) run side by side? Not when one may leave, or all store to one
 * place. */
bool ap_nest_is_parallel(const ap_nest_facts *f, int section, int l);

/* What is to be done for sop `id` when so many loops are open; section < 0: further out, for all sections. A fold is
 * done with all loops of its section open, a check as soon as its index is known, the element where it is used. */
typedef struct ap_nest_due {
    bool range; /* first: its own range (CHECK), or that of the row it looks for */
    bool value; /* then the value, the fold, or the store */
} ap_nest_due;
ap_nest_due ap_nest_due_at(const ap_nest_facts *f, uint32_t id, int level, int section);

/* ---- indices ---- */

/* Has another operation checked the index already? */
bool ap_nest_is_checked(const ap_nest_facts *f, const ap_sop *s);
/* Does the part of this rank begin at an int of the call? */
bool ap_nest_has_start(const ap_kernel *k, const ap_sop *s);
/* Does every rank hold all rows, so that a checked index is a row of its part? */
bool ap_nest_holds_all(const ap_nest_facts *f, const ap_sop *s);
/* Does some rank hold no row at all? */
bool ap_nest_may_hold_none(const ap_nest_facts *f, const ap_sop *s);
bool ap_emit_nest_checks(const ap_kernel *k); /* may find an index out of range */

/* ---- row temporaries ---- */

int ap_nest_register_bytes(ap_dtype t);              /* f16, bf16 and bool take 4 */
int64_t ap_nest_temp_bytes(const ap_nest *n, int i); /* of temporary i, whole cache lines */
/* Bytes of row temporaries that do not fit on the stack, 0 if all do. */
int64_t ap_emit_nest_scratch(const ap_kernel *k);

/* ---- lanes.c ---- */

/* Which loop is the lane, and how many of its elements are a block; false: rows are not done in lanes. */
bool ap_lanes_find(const ap_kernel *k, int *out_loop, int64_t *out_width);
bool ap_emit_has_lanes(const ap_kernel *k);
int64_t ap_emit_lanes_scratch(const ap_kernel *k); /* as ap_emit_nest_scratch */

typedef struct ap_lanes {
    int loop;          /* which one is the lane */
    int64_t width;     /* of a block */
    bool *live, *kept; /* per sop: something depends on it; a later section reads it */
} ap_lanes;
/* Only where ap_emit_has_lanes says so. */
ap_lanes ap_lanes_facts(ap_arena *arena, const ap_kernel *k);
/* Does the section read the number that sop `id` of an earlier section made for the row? */
bool ap_lanes_arrives(const ap_lanes *f, const ap_nest *n, uint32_t id, int section);
bool ap_lanes_is_empty(const ap_lanes *f, const ap_nest *n, int section);

#endif
