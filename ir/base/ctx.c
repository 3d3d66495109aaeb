/* One compilation: its arenas, locations and diagnostics. */
#include "ir/base/ctx.h"

#include "ir/base/name_table.h"
#include "ir/base/text.h"

#include <stdlib.h>

static void out_of_memory(void *user)
{
    ap_ctx *ctx = user; /* its root is its first member */
    if (ctx->on_oom)
        longjmp(*ctx->on_oom, 1);
    abort();
}

/* Apart from ap_ctx_create, so that no local of the caller of setjmp changes after it. */
static bool fill(ap_ctx *ctx)
{
    jmp_buf buf;
    if (setjmp(*ap_ctx_guard(ctx, &buf)) != 0)
        return false;
    ctx->names = ap_name_table_create(&ctx->arena);
    ap_name_make_n(ctx, "", 0);
    ap_vec_push(&ctx->arena, &ctx->locs, (ap_loc_info){0});
    ctx->on_oom = NULL;
    return true;
}

ap_ctx *ap_ctx_create(void)
{
    ap_ctx *ctx = calloc(1, sizeof *ctx);
    if (!ctx)
        return NULL;
    ap_arena_init(&ctx->arena, out_of_memory, &ctx->root);
    ap_arena_init(&ctx->scratch, out_of_memory, &ctx->root);
    if (!fill(ctx)) {
        ap_ctx_release(ctx);
        return NULL;
    }
    return ctx;
}

void ap_ctx_release(ap_ctx *ctx)
{
    if (!ctx)
        return;
    for (ap_cleanup *c = ctx->cleanups; c; c = c->next)
        c->run(c->user);
    ap_arena_root_deinit(&ctx->root); /* the two arenas are all there is, unless memory ran out */
    free(ctx);
}

void ap_ctx_on_release(ap_ctx *ctx, void (*run)(void *user), void *user)
{
    ap_cleanup *c = AP_NEW(&ctx->arena, ap_cleanup);
    *c = (ap_cleanup){.next = ctx->cleanups, .run = run, .user = user};
    ctx->cleanups = c;
}

ap_loc ap_loc_make(ap_ctx *ctx, ap_name file, ap_name node, ap_name op)
{
    /* Nodes of one place are made one after another: looking back a little finds nearly every repeat. */
    for (uint32_t i = ctx->locs.len, tries = 0; i > 0 && tries < 8; tries++) {
        const ap_loc_info *l = &ctx->locs.at[--i];
        if (l->file == file && l->node == node && l->op == op)
            return i;
    }
    ap_vec_push(&ctx->arena, &ctx->locs, (ap_loc_info){.file = file, .node = node, .op = op});
    return ctx->locs.len - 1;
}

ap_loc_info ap_loc_get(const ap_ctx *ctx, ap_loc loc)
{
    return ctx->locs.at[loc];
}

static bool is_control(char c)
{
    return (unsigned char)c < ' ' || c == 0x7f;
}

/* Names of a model stand in messages: they must not make lines, or commands to a terminal. */
static const char *escape_controls(ap_arena *arena, const char *s)
{
    size_t n = 0;
    for (const char *c = s; *c; c++)
        n += is_control(*c);
    if (n == 0)
        return s;
    ap_text t;
    ap_text_init(&t, arena);
    for (; *s; s++) {
        if (*s == '\n')
            ap_text_add(&t, "\\n");
        else if (is_control(*s))
            ap_text_addf(&t, "\\x%02x", (unsigned char)*s);
        else
            ap_text_add_n(&t, s, 1);
    }
    return ap_text_str(&t);
}

static const char *format(ap_ctx *ctx, const char *fmt, va_list args) __attribute__((format(printf, 2, 0)));
static const char *format(ap_ctx *ctx, const char *fmt, va_list args)
{
    va_list again;
    va_copy(again, args);
    int n = vsnprintf(NULL, 0, fmt, args);
    char *text = ap_arena_alloc(&ctx->arena, n > 0 ? (size_t)n + 1 : 1);
    if (n > 0)
        vsnprintf(text, (size_t)n + 1, fmt, again);
    va_end(again);
    return text;
}

static ap_status add_diag(ap_ctx *ctx, ap_status status, ap_loc loc, const char *more, const char *fmt, va_list args)
    __attribute__((format(printf, 5, 0)));
static ap_status add_diag(ap_ctx *ctx, ap_status status, ap_loc loc, const char *more, const char *fmt, va_list args)
{
    const char *text = format(ctx, fmt, args);
    ap_diag d = {.status = status, .loc = loc, .text = escape_controls(&ctx->arena, text), .more = more};
    ap_vec_push(&ctx->arena, &ctx->diags, d);
    return status;
}

ap_status ap_error(ap_ctx *ctx, ap_loc loc, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    ap_status s = add_diag(ctx, AP_ERR_MODEL, loc, NULL, fmt, args);
    va_end(args);
    return s;
}

ap_status ap_error_of(ap_ctx *ctx, ap_loc loc, const char *what, const char *fmt, va_list args)
{
    return ap_error(ctx, loc, "%s: %s", what, format(ctx, fmt, args));
}

ap_status ap_fail(ap_ctx *ctx, ap_status status, ap_loc loc, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    ap_status s = add_diag(ctx, status, loc, NULL, fmt, args);
    va_end(args);
    return s;
}

ap_status ap_fail_more(ap_ctx *ctx, ap_status status, const char *more, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    ap_status s = add_diag(ctx, status, 0, more, fmt, args);
    va_end(args);
    return s;
}

const char *ap_diag_str(ap_ctx *ctx, const ap_diag *d)
{
    ap_loc_info l = ap_loc_get(ctx, d->loc);
    ap_text t;
    ap_text_init(&t, &ctx->arena);
    if (l.file)
        ap_text_addf(&t, "%s: ", escape_controls(&ctx->arena, ap_name_str(ctx, l.file)));
    if (l.node) {
        ap_text_add(&t, "node ");
        ap_text_add_quoted(&t, ap_name_str(ctx, l.node));
        if (l.op)
            ap_text_addf(&t, " (%s)", escape_controls(&ctx->arena, ap_name_str(ctx, l.op)));
        ap_text_add(&t, ": ");
    }
    ap_text_add(&t, d->text);
    if (d->more)
        ap_text_addf(&t, "\n%s", d->more);
    return ap_text_str(&t);
}
