/* Inside the LLVM back end: a module in the making. One function per kernel, with the signature that the C printer
 * gives it, so that a program may be linked from either (DESIGN §10). */
#ifndef AP_BACKEND_LLVM_BUILD_H
#define AP_BACKEND_LLVM_BUILD_H

#include "backend/llvm/names.h"

#include <llvm-c/Core.h>

typedef LLVMValueRef ap_ll_value;

typedef struct ap_ll {
    const ap_emit *e;
    LLVMContextRef context;
    LLVMModuleRef module;
    LLVMBuilderRef builder;
    LLVMTypeRef i1, i8, i16, i32, i64, f32, f64, ptr, none;
    bool has_half;            /* the processor converts f16 */
    LLVMMetadataRef accesses; /* what memory accesses in parallel loops are marked with */
    LLVMMetadataRef group;    /* the same inside of one; NULL outside */
    /* the function in the making */
    ap_ll_value function;
    LLVMBasicBlockRef entry; /* for the stack; ends without a branch until the function is closed */
} ap_ll;

/* ---- build.c ---- */

void ap_ll_init(ap_ll *b, const ap_emit *e, const char *module);
void ap_ll_deinit(ap_ll *b); /* the module and its context too */

/* What a register holds: f16 and bf16 are float, bool is an i32 of 0 or 1. And what memory holds. */
LLVMTypeRef ap_ll_register(const ap_ll *b, ap_dtype t);
LLVMTypeRef ap_ll_memory(const ap_ll *b, ap_dtype t);

ap_ll_value ap_ll_int(const ap_ll *b, int64_t x); /* i64 */
ap_ll_value ap_ll_int32(const ap_ll *b, int64_t x);
ap_ll_value ap_ll_literal(const ap_ll *b, ap_dtype t, ap_scalar x); /* in a register */
/* `fadd` and the like may be fused into what follows, as with -ffp-contract=fast; `reorder` lets sums be made in
 * lanes. */
ap_ll_value ap_ll_contract(ap_ll_value x);
ap_ll_value ap_ll_reorder(ap_ll_value x);

/* Opens a function of that name: parameters of `type`, blocks `entry` and `body`, the builder at the body. */
ap_ll_value ap_ll_open_function(ap_ll *b, const char *name, LLVMTypeRef type);
/* Returns `value` (NULL: nothing) and closes it. */
void ap_ll_close_function(ap_ll *b, ap_ll_value value);
ap_ll_value ap_ll_stack(ap_ll *b, LLVMTypeRef type, int64_t count, unsigned align);
void ap_ll_attribute(ap_ll *b, ap_ll_value function, unsigned index, const char *name);

/* A call of a function that is declared when it is first called. */
ap_ll_value ap_ll_call(ap_ll *b, const char *name, LLVMTypeRef result, unsigned n, ap_ll_value *args);
/* The same for an intrinsic, by the types it is overloaded on. */
ap_ll_value ap_ll_intrinsic(ap_ll *b, const char *name, unsigned ntypes, LLVMTypeRef *types, unsigned n,
                            ap_ll_value *args);

/* sum over loops of stride * loop; NULL loops count as 0 */
ap_ll_value ap_ll_strides(ap_ll *b, int loops, const int64_t *stride, const ap_ll_value *loop);
ap_ll_value ap_ll_add(ap_ll *b, ap_ll_value x, ap_ll_value y); /* of places: never wraps */
ap_ll_value ap_ll_scale(ap_ll *b, ap_ll_value x, int64_t factor);
ap_ll_value ap_ll_at(ap_ll *b, LLVMTypeRef type, ap_ll_value base, ap_ll_value index);

/* An element of a buffer, as a register has it; and back. `t` is what the buffer holds. */
ap_ll_value ap_ll_load(ap_ll *b, ap_dtype t, ap_ll_value base, ap_ll_value index);
void ap_ll_store(ap_ll *b, ap_dtype t, ap_ll_value base, ap_ll_value index, ap_ll_value x);
/* The same for buffers of registers: row temporaries, folds. */
ap_ll_value ap_ll_read(ap_ll *b, LLVMTypeRef type, ap_ll_value base, ap_ll_value index);
void ap_ll_write(ap_ll *b, ap_ll_value base, ap_ll_value index, ap_ll_value x);

/* for (i = first; i < end; i += step). Turns of a parallel loop do not depend on each other through memory, and it
 * becomes vector code where that can be. */
typedef struct ap_ll_loop {
    ap_ll_value i, end, step;
    LLVMBasicBlockRef head, exit;
    LLVMMetadataRef outer_group;
    bool parallel;
} ap_ll_loop;
ap_ll_loop ap_ll_open_loop(ap_ll *b, ap_ll_value first, ap_ll_value end, int64_t step, bool parallel);
void ap_ll_close_loop(ap_ll *b, ap_ll_loop *l);
/* if (condition) { ... } */
LLVMBasicBlockRef ap_ll_open_if(ap_ll *b, ap_ll_value condition);
void ap_ll_close_if(ap_ll *b, LLVMBasicBlockRef after);

/* ---- math.c: the formulas of ir/op/pointwise.def as instructions ---- */

ap_ll_value ap_ll_pointwise(ap_ll *b, ap_pointwise pw, ap_dtype operands, ap_dtype result, const ap_ll_value *x);
ap_ll_value ap_ll_from_f16(ap_ll *b, ap_dtype t, ap_ll_value x); /* f16 or bf16 in an i16; here and below */
ap_ll_value ap_ll_to_f16(ap_ll *b, ap_dtype t, ap_ll_value x);
ap_ll_value ap_ll_round(ap_ll *b, ap_dtype t, ap_ll_value x); /* a float to that precision; others stay */

/* ---- fold.c: what nests, lanes and pools fold into ---- */

LLVMTypeRef ap_ll_fold_type(const ap_ll *b, ap_fold_type fold, ap_dtype t);
ap_ll_value ap_ll_fold_start(const ap_nest *n, const ap_sop *s, LLVMTypeRef type);
/* A register of type t as what sums of that type are made in. */
ap_ll_value ap_ll_fold_widen(ap_ll *b, ap_dtype t, ap_ll_value x, LLVMTypeRef type);
/* The larger or the smaller one; NaN wins. Either zero is as good as the other. */
ap_ll_value ap_ll_extreme(ap_ll *b, bool largest, ap_dtype t, ap_ll_value x, ap_ll_value y);
/* acc and x (a register of type t) together; not for argmax and argmin. */
ap_ll_value ap_ll_fold(ap_ll *b, uint8_t reduce, ap_dtype t, ap_ll_value acc, ap_ll_value x);
/* Does x, at a later place, replace acc, found at `at` (< 0: none)? An i1. The first NaN wins. */
ap_ll_value ap_ll_fold_takes(ap_ll *b, bool largest, ap_dtype t, ap_ll_value acc, ap_ll_value at, ap_ll_value x);
/* The finished fold as a register of type t. */
ap_ll_value ap_ll_fold_end(ap_ll *b, ap_dtype t, ap_ll_value acc);

/* ---- kernels.c and one file per class ---- */

/* A kernel's function while it is filled. */
typedef struct ap_ll_kernel {
    ap_ll *b;
    const ap_kernel *k;
    bool apart;
    ap_ll_value *operand; /* pointers */
    ap_ll_value *number;  /* ints */
    ap_ll_value scratch, bad;
} ap_ll_kernel;

/* Extent of a loop: its turns on this rank. */
ap_ll_value ap_ll_turns(const ap_ll_kernel *w, int64_t extent, uint32_t turns);
/* Leaves the kernel when x is not in [first, limit). */
void ap_ll_check_range(ap_ll_kernel *w, ap_ll_value x, int64_t first, int64_t limit);

/* ---- rows.c: what nests and lanes have in common ---- */

/* The body of a nest in the making: loops that are open, numbers that are made. Folds are on the stack, from where the
 * optimiser takes what it can into registers. */
typedef struct ap_ll_rows {
    ap_ll_kernel *w;
    ap_ll *b;
    const ap_nest *n;
    int64_t inner_count, long_sum;   /* turns of the inner loops; from how many on sums are made in double */
    ap_ll_value loop[AP_MAX_LOOPS];  /* NULL: not opened yet */
    ap_ll_value *value;              /* per sop */
    int64_t width;                   /* lanes of a block */
    ap_ll_value lane;                /* the one in progress; 0 without lanes */
    ap_ll_value *fold, *at, temp[8]; /* per fold, of argmax and argmin, per temporary: arrays of a block each */
} ap_ll_rows;
ap_ll_rows ap_ll_rows_start(ap_ll_kernel *w, int64_t width, int64_t long_sum);
/* Makes the arrays of a fold (once); of all temporaries, a block for each place within the inner loops: on the stack,
 * or in scratch memory where the kernel is given that. */
void ap_ll_rows_hold(ap_ll_rows *r, uint32_t id);
void ap_ll_rows_temps(ap_ll_rows *r);

ap_ll_value ap_ll_value_of(const ap_ll_rows *r, uint32_t id);
/* Where the element lies in its operand. */
ap_ll_value ap_ll_place_of(const ap_ll_rows *r, const ap_sop *s);
/* REDUCE and SCAN, in the lane: is started, folded into, and read as a finished value. */
void ap_ll_rows_fold_start(ap_ll_rows *r, uint32_t id);
void ap_ll_rows_fold(ap_ll_rows *r, uint32_t id);
ap_ll_value ap_ll_rows_folded(ap_ll_rows *r, uint32_t id);
/* LOAD, INDEX, POINTWISE, REDUCE, STORE, TEMP_STORE, TEMP_LOAD: sets its value, if it has one. Others are left alone.
 */
void ap_ll_rows_make(ap_ll_rows *r, uint32_t id);

/* ---- kernels ---- */

LLVMTypeRef ap_ll_kernel_type(const ap_ll *b, const ap_kernel *k);
/* Kernels [first, end) of the program, but convolutions, which are tables. */
ap_status ap_ll_kernels(ap_ll *b, uint32_t first, uint32_t end);

void ap_ll_nest(ap_ll_kernel *w);
void ap_ll_lanes(ap_ll_kernel *w);
void ap_ll_pool(ap_ll_kernel *w);
void ap_ll_topk(ap_ll_kernel *w);
/* The function of what follows a product, made before that of the product is opened; NULL where nothing does. */
ap_ll_value ap_ll_after(ap_ll_kernel *w);
void ap_ll_gemm(ap_ll_kernel *w, ap_ll_value after);
/* The nest of a product over rows row[0] ... row[1] and columns column[0] ... column[1], inside its loops. */
void ap_ll_tile(ap_ll_kernel *w, const ap_ll_value *loop, const ap_ll_value row[2], const ap_ll_value column[2]);

/* ---- run.c: what a device does, per stage ---- */

/* The functions of the stage that e has turned to. */
void ap_ll_stage(ap_ll *b);

#endif
