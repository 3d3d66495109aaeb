/* Inside the C back end: the emitter, and one function per file that it writes. */
#ifndef AP_BACKEND_EMIT_H
#define AP_BACKEND_EMIT_H

#include "backend/backend.h"
#include "backend/nest.h"

typedef struct ap_emit {
    ap_ctx *ctx;
    const ap_program *program;
    const ap_backend_options *opt;
    uint32_t nkernels;
    const ap_kernel **kernel; /* of all stages, one of each name, in order of first use */
    uint32_t **kernel_of;     /* by stage and its kernel: which of these */
    bool *apart;              /* per kernel: in no call does a written operand overlap another one */
    uint32_t *first_param;    /* by stage, and one more: the parameters of all stages are numbered through */
    const char **weight;      /* per parameter: its name in weights.safetensors */
    /* the stage that is being written */
    const ap_local *p;
    uint32_t stage;
} ap_emit;

/* Of the stage that is being written. */
ap_target ap_emit_target(const ap_emit *e);
/* Is the kernel one of stages for this target? */
bool ap_emit_kernel_is_for(const ap_emit *e, uint32_t index, ap_target target);
bool ap_emit_has_target(const ap_emit *e, ap_target target);

/* A program to be printed, in whatever language: its kernels, and what lies apart in memory. */
ap_status ap_emit_begin(ap_emit *e, ap_ctx *ctx, const ap_program *p, const ap_backend_options *opt);
/* Turns to a stage: sets p and stage. */
void ap_emit_turn(ap_emit *e, uint32_t stage);
/* What the names of a stage's tables and functions begin with: "stage0_"; "" where there is just one stage. */
const char *ap_emit_prefix(const ap_emit *e);

/* ---- c_names.c ---- */
/* {1, 2, 3}; C has no empty initialiser, so that an empty list is {0}. */
void ap_emit_list(ap_text *t, int n, const int64_t *x);
/* The text inside a comment: one line unless `lines`, with no end of comment in it. */
void ap_emit_comment(ap_text *t, const char *s, bool lines);
/* A C string literal, quotes included. */
void ap_emit_string(ap_text *t, const char *s);
const char *ap_emit_dtype(ap_dtype t); /* APRT_F32 */
/* Type of a value in a register: f16 and bf16 are float, bool is int. */
const char *ap_emit_register(ap_dtype t);
/* base + step*c_x + ...; false when it is zero and nothing was written. `times` is a factor for all of it. */
bool ap_emit_affine(const ap_emit *e, ap_text *t, const ap_affine *a);
/* The name of axis a as a variable. */
void ap_emit_axis(const ap_emit *e, ap_text *t, int a);
/* A line, indented by four blanks for each of `depth`. */
void ap_emit_line(const ap_emit *e, ap_text *t, int depth, const char *fmt, ...) __attribute__((format(printf, 4, 5)));
/* The comment and licence line at the top of a file. */
void ap_emit_top(const ap_emit *e, ap_text *t, const char *what);
ap_status ap_emit_file(const ap_emit *e, const char *file, const ap_text *t);

/* ---- c_pointwise.c ---- */
/* The formula of `pw` over expressions x[], of precedence 3 (names, calls, positive literals) or 2 (unary). */
typedef struct ap_expr {
    const char *text;
    int precedence; /* 3 primary, 2 unary, 1 binary, 0 conditional */
} ap_expr;
ap_expr ap_emit_pointwise(ap_ctx *ctx, ap_pointwise pw, ap_dtype operands, ap_dtype result, const ap_expr *x);
ap_expr ap_emit_literal(ap_ctx *ctx, ap_dtype t, ap_scalar x);

/* ---- c_alias.c, c_kernels.c, c_nest.c ---- */
/* Fills e->apart. */
void ap_emit_find_apart(ap_emit *e);
void ap_emit_nest(const ap_emit *e, ap_text *t, const ap_kernel *k);
/* The nest of a product over rows row0 ... row1 and columns column0 ... column1, inside its loops. */
void ap_emit_tile(const ap_emit *e, ap_text *t, const ap_kernel *k);
/* ---- c_epilogue.c ---- */
/* The function that does what follows a product; the arguments `after` and `with` for it. */
void ap_emit_after(const ap_emit *e, ap_text *t, uint32_t index);
void ap_emit_after_argument(const ap_emit *e, ap_text *t, const ap_kernel *k);
/* ---- c_nest_lanes.c ---- */
/* Only where ap_emit_has_lanes says so. */
void ap_emit_lanes(const ap_emit *e, ap_text *t, const ap_kernel *k);

/* ---- c_pool.c ---- */
void ap_emit_pool(const ap_emit *e, ap_text *t, const ap_kernel *k);

void ap_emit_rows(ap_text *t, const ap_kernel *k);
/* Name of operand i of a kernel: x0, x1, ... for those that are read, y0, ... for those written; GEMM: a, b, c. */
void ap_emit_operand(ap_text *t, const ap_kernel *k, uint32_t i);
ap_status ap_emit_kernels(ap_emit *e);

/* ---- c_conv.c ---- */
/* False for steps that the library does not do. */
bool ap_emit_conv_knows(const ap_kernel *k);
/* const aprt_conv NAME_k_conv = { ... }; */
void ap_emit_conv_table(const ap_emit *e, ap_text *t, const ap_kernel *k);

/* ---- program.c: c_tables.c, c_run.c, c_pipe.c ---- */
const char *ap_emit_exchange_name(ap_exchange_kind k);
/* {"name", type, rank, {dimensions}} */
void ap_emit_port(const ap_emit *e, ap_text *t, const ap_port *port, const char *name);
/* Parameters, groups, exchanges, instructions, boxes of outputs of the stage; how many boxes. */
ap_status ap_emit_tables(const ap_emit *e, ap_text *t, uint32_t *out_written);
/* What a device does for one microbatch, and once when it is opened. */
void ap_emit_macros(ap_text *t);
void ap_emit_run(const ap_emit *e, ap_text *t);
void ap_emit_prepare(const ap_emit *e, ap_text *t);
uint32_t ap_emit_conv_slots(const ap_emit *e);
bool ap_emit_prepares(const ap_emit *e); /* has something to do when it is opened */
/* The instruction list of a stage as a function; channels and their pieces, if any. */
void ap_emit_list_function(const ap_emit *e, ap_text *t);
void ap_emit_channels(const ap_emit *e, ap_text *t);
/* The tables of predicted times, where there are any. */
void ap_emit_predicted(const ap_emit *e, ap_text *t);
/* The channel that enters at a port of the stage, or any that leaves there. */
uint32_t ap_emit_channel_of(const ap_emit *e, bool output, uint32_t port);
/* Which of the program's ports, or of the channels, those of the stage are. */
void ap_emit_port_numbers(const ap_emit *e, ap_text *t);

/* ---- the other files ---- */
ap_status ap_emit_header(ap_emit *e);
ap_status ap_emit_program(ap_emit *e);
ap_status ap_emit_main(const ap_emit *e);
/* CMakeLists.txt and NAME.pc, of sources and of object files. */
ap_status ap_emit_build_files(const ap_emit *e);
ap_status ap_emit_object_files(const ap_emit *e);
/* Sets e->first_param and e->weight; the tensors of all parameters, each once. Those that lie in the model's files stay
 * there, mapped as long as the context. */
typedef struct ap_emit_tensor {
    const char *name, *bytes;
    int64_t size;
    bool mapped; /* of a file */
} ap_emit_tensor;
ap_status ap_emit_hold_weights(ap_emit *e, ap_arena *arena, uint32_t *out_count, ap_emit_tensor **out);
/* Sets e->first_param and e->weight and writes weights.safetensors, and the other files of the form wanted. */
ap_status ap_emit_weights(ap_emit *e);

#endif
