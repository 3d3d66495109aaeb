/* Small pieces of C text: comments, strings, types, affine numbers. */
#include "backend/emit.h"

#include "ir/base/file.h"

#include <ctype.h>
#include <inttypes.h>
#include <string.h>

void ap_emit_turn(ap_emit *e, uint32_t stage)
{
    e->stage = stage;
    e->p = e->program->stages.at[stage];
}

const char *ap_emit_prefix(const ap_emit *e)
{
    if (e->program->stages.len == 1)
        return "";
    return ap_name_str(e->ctx, ap_name_format(e->ctx, "stage%" PRIu32 "_", e->stage));
}

void ap_emit_list(ap_text *t, int n, const int64_t *x)
{
    ap_text_add(t, "{");
    for (int i = 0; i < n; i++)
        ap_text_addf(t, "%s%" PRId64, i ? ", " : "", x[i]);
    ap_text_add(t, n ? "}" : "0}");
}

void ap_emit_comment(ap_text *t, const char *s, bool lines)
{
    for (; *s; s++) {
        if (*s == '\n')
            ap_text_add(t, lines ? "\n * " : " ");
        else if ((unsigned char)*s < ' ')
            ap_text_add(t, " ");
        else if (s[0] == '*' && s[1] == '/')
            ap_text_add(t, "* ");
        else if (s[0] == '/' && s[1] == '*')
            ap_text_add(t, "/ ");
        else
            ap_text_add_n(t, s, 1);
    }
}

void ap_emit_string(ap_text *t, const char *s)
{
    ap_text_add(t, "\"");
    for (; *s; s++) {
        unsigned char c = (unsigned char)*s;
        if (c == '"' || c == '\\' || c == '?') /* ??/ would be a trigraph */
            ap_text_addf(t, "\\%c", c);
        else if (c < ' ' || c == 127)
            ap_text_addf(t, "\\%03o", c);
        else
            ap_text_add_n(t, s, 1);
    }
    ap_text_add(t, "\"");
}

const char *ap_emit_dtype(ap_dtype t)
{
    static const char *const names[AP_DTYPE_COUNT] = {[AP_DTYPE_NONE] = "0",
#define X(E, text, bytes, onnx, c) [AP_##E] = "APRT_" #E,
                                                      AP_DTYPES(X)
#undef X
    };
    return names[t];
}

const char *ap_emit_register(ap_dtype t)
{
    return t == AP_F16 || t == AP_BF16 ? "float" : t == AP_BOOL ? "int" : ap_dtype_c(t);
}

static bool is_identifier(const char *s)
{
    if (!isalpha((unsigned char)*s) && *s != '_')
        return false;
    for (; *s; s++)
        if (!isalnum((unsigned char)*s) && *s != '_')
            return false;
    return true;
}

void ap_emit_axis(const ap_emit *e, ap_text *t, int a)
{
    const char *name = ap_name_str(e->ctx, e->p->axis_name[a]);
    if (is_identifier(name))
        ap_text_addf(t, "at_%s", name);
    else
        ap_text_addf(t, "at_%d", a);
}

bool ap_emit_affine(const ap_emit *e, ap_text *t, const ap_affine *a)
{
    bool any = false;
    if (a->base != 0) {
        ap_text_addf(t, "%" PRId64, a->base);
        any = true;
    }
    for (int i = 0; i < e->p->naxes; i++) {
        if (a->step[i] == 0)
            continue;
        if (any)
            ap_text_add(t, a->step[i] < 0 ? " - " : " + ");
        else if (a->step[i] < 0)
            ap_text_add(t, "-");
        int64_t step = a->step[i] < 0 ? -a->step[i] : a->step[i];
        if (step != 1)
            ap_text_addf(t, "%" PRId64 "*", step);
        ap_emit_axis(e, t, i);
        any = true;
    }
    return any;
}

void ap_emit_line(const ap_emit *e, ap_text *t, int depth, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    char *text = ap_arena_alloc(&e->ctx->scratch, (size_t)n + 1);
    va_start(ap, fmt);
    vsnprintf(text, (size_t)n + 1, fmt, ap);
    va_end(ap);
    ap_text_addf(t, "%*s", 4 * depth, "");
    ap_text_add(t, text);
    ap_text_add(t, "\n");
}

void ap_emit_top(const ap_emit *e, ap_text *t, const char *what)
{
    ap_text_add(t, "/* SPDX-License-Identifier: MIT\n *\n * ");
    ap_text_addf(t, "%s: %s\n", e->opt->name, what);
    if (e->opt->header && *e->opt->header) {
        ap_text_add(t, " *\n * ");
        size_t n = strlen(e->opt->header);
        while (n && e->opt->header[n - 1] == '\n')
            n--;
        ap_emit_comment(t, ap_arena_strndup(&e->ctx->scratch, e->opt->header, n), true);
        ap_text_add(t, "\n");
    }
    ap_text_add(t, " */\n");
}

ap_status ap_emit_file(const ap_emit *e, const char *file, const ap_text *t)
{
    ap_text path;
    ap_text_init(&path, &e->ctx->scratch);
    ap_text_addf(&path, "%s/%s", e->opt->dir, file);
    return ap_file_write(e->ctx, ap_text_str(&path), ap_text_str(t), t->len);
}
