/* The context of one compilation: arenas, interned names, locations, diagnostics, and the tables of
 * interned types. There are no mutable globals, so two compilations can share a process. */
#ifndef AP_IR_BASE_CTX_H
#define AP_IR_BASE_CTX_H

#include "ir/base/arena.h"
#include "ir/base/num.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

/* The numbers are the exit codes of the command line. */
typedef enum ap_status {
    AP_OK = 0,
    AP_ERR_MODEL = 1,   /* the model, data, plan or comparison is wrong */
    AP_ERR_USAGE = 2,   /* the command line is wrong */
    AP_ERR_NO_PLAN = 3, /* no plan fits */
    AP_ERR_ENV = 4,     /* file, memory, disk, peer */
    AP_ERR_BUG = 70,    /* ours */
} ap_status;

#define AP_TRY(expr)                                                                                                   \
    do {                                                                                                               \
        ap_status try_status = (expr);                                                                                 \
        if (try_status != AP_OK)                                                                                       \
            return try_status;                                                                                         \
    } while (0)

/* An interned string; 0 is the empty string. Equal strings have equal ids. */
typedef uint32_t ap_name;

/* Where something comes from: file, ONNX node (or value) and operator type; 0 is "nowhere". */
typedef uint32_t ap_loc;

typedef struct ap_loc_info {
    ap_name file; /* as the user gave it, or 0 */
    ap_name node; /* display name of the node: DESIGN §2 */
    ap_name op;   /* ONNX operator type, or 0 */
} ap_loc_info;

/* What a model's file calls a value, and the node that it comes from. */
typedef struct ap_origin {
    ap_name value;
    ap_loc loc;
    bool constant; /* computed on import, or given */
} ap_origin;

typedef struct ap_diag {
    ap_status status;
    ap_loc loc;
    const char *text; /* one line without location; control characters are escaped, names can hold anything */
    const char *more; /* lines to be shown below, as they are; or NULL */
} ap_diag;

typedef struct ap_name_table ap_name_table; /* ir/base/name.c */
typedef struct ap_type_table ap_type_table; /* ir/type.c */

typedef struct ap_cleanup {
    struct ap_cleanup *next;
    void (*run)(void *user);
    void *user;
} ap_cleanup;

typedef struct ap_ctx {
    ap_arena_root root; /* first: arenas know their context by it */
    ap_arena arena;     /* lives as long as the context */
    ap_arena scratch;   /* reset by the pass pipeline after every pass */
    ap_name_table *names;
    ap_type_table *types; /* owned; made by ap_type_table_create on first use */
    AP_VEC(ap_loc_info) locs;
    AP_VEC(ap_diag) diags;
    ap_cleanup *cleanups; /* what must be closed at the end: mapped files */
    jmp_buf *on_oom;      /* borrowed; where to go when memory is out, or NULL: abort */
} ap_ctx;

ap_ctx *ap_ctx_create(void); /* NULL when memory is out */
void ap_ctx_release(ap_ctx *ctx);
/* Calls run(user) when the context is released, last registered first. */
void ap_ctx_on_release(ap_ctx *ctx, void (*run)(void *user), void *user);

/* if (setjmp(*ap_ctx_guard(ctx, &buf)) != 0) -> memory ran out; every arena is still consistent. */
static inline jmp_buf *ap_ctx_guard(ap_ctx *ctx, jmp_buf *buf)
{
    ctx->on_oom = buf;
    return buf;
}

ap_name ap_name_make(ap_ctx *ctx, const char *s);
ap_name ap_name_make_n(ap_ctx *ctx, const char *s, size_t n);
ap_name ap_name_format(ap_ctx *ctx, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
const char *ap_name_str(const ap_ctx *ctx, ap_name n); /* never NULL, NUL-terminated */

ap_loc ap_loc_make(ap_ctx *ctx, ap_name file, ap_name node, ap_name op); /* interned */
ap_loc_info ap_loc_get(const ap_ctx *ctx, ap_loc loc);

/* Record one diagnostic and return its status, so that callers can `return ap_error(...)`.
 * All diagnostics are kept; the driver prints every one:  FILE: node "NAME" (OP): TEXT */
ap_status ap_error(ap_ctx *ctx, ap_loc loc, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
ap_status ap_fail(ap_ctx *ctx, ap_status status, ap_loc loc, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
/* "WHAT: TEXT", for those who complain of one thing in many ways. */
ap_status ap_error_of(ap_ctx *ctx, ap_loc loc, const char *what, const char *fmt, va_list args)
    __attribute__((format(printf, 4, 0)));
/* With the output of a tool, say, below the message. */
ap_status ap_fail_more(ap_ctx *ctx, ap_status status, const char *more, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
/* The line as the user sees it (without newline at the end), in the context's arena. */
const char *ap_diag_str(ap_ctx *ctx, const ap_diag *d);

#endif
