/* Interned strings: an open-addressing table from text to id; ids count up in order of first use. */
#include "ir/base/name_table.h"

#include <string.h>

struct ap_name_table {
    AP_VEC(const char *) text;
    AP_VEC(uint32_t) length;
    uint32_t *slot; /* id + 1, 0: empty */
    uint32_t nslots;
};

uint64_t ap_hash_bytes(const void *p, size_t n)
{
    const unsigned char *s = p;
    uint64_t h = 14695981039346656037u;
    for (size_t i = 0; i < n; i++)
        h = (h ^ s[i]) * 1099511628211u;
    return h;
}

ap_name_table *ap_name_table_create(ap_arena *arena)
{
    ap_name_table *t = AP_NEW(arena, ap_name_table);
    t->nslots = 1024;
    t->slot = AP_NEW_ARRAY(arena, uint32_t, t->nslots);
    return t;
}

static uint32_t *find_slot(const ap_name_table *t, const char *s, size_t n)
{
    uint32_t i = (uint32_t)ap_hash_bytes(s, n) & (t->nslots - 1);
    while (t->slot[i]) {
        uint32_t id = t->slot[i] - 1;
        if (t->length.at[id] == n && (n == 0 || memcmp(t->text.at[id], s, n) == 0))
            break;
        i = (i + 1) & (t->nslots - 1);
    }
    return &t->slot[i];
}

static void grow(ap_arena *arena, ap_name_table *t)
{
    t->nslots *= 2;
    t->slot = AP_NEW_ARRAY(arena, uint32_t, t->nslots);
    for (uint32_t id = 0; id < t->text.len; id++)
        *find_slot(t, t->text.at[id], t->length.at[id]) = id + 1;
}

ap_name ap_name_make_n(ap_ctx *ctx, const char *s, size_t n)
{
    ap_name_table *t = ctx->names;
    if (n > UINT32_MAX)
        n = UINT32_MAX;
    uint32_t *slot = find_slot(t, s, n);
    if (*slot)
        return *slot - 1;
    if (t->text.len * 2 >= t->nslots) {
        grow(&ctx->arena, t);
        slot = find_slot(t, s, n);
    }
    const char *copy = ap_arena_strndup(&ctx->arena, s, n);
    ap_vec_push(&ctx->arena, &t->text, copy);
    ap_vec_push(&ctx->arena, &t->length, (uint32_t)n);
    *slot = t->text.len;
    return t->text.len - 1;
}

ap_name ap_name_make(ap_ctx *ctx, const char *s)
{
    return ap_name_make_n(ctx, s, strlen(s));
}

ap_name ap_name_format(ap_ctx *ctx, const char *fmt, ...)
{
    char small[256];
    va_list ap, again;
    va_start(ap, fmt);
    va_copy(again, ap);
    int n = vsnprintf(small, sizeof small, fmt, ap);
    va_end(ap);
    char *s = small;
    if (n >= (int)sizeof small) {
        s = ap_arena_alloc(&ctx->arena, (size_t)n + 1);
        vsnprintf(s, (size_t)n + 1, fmt, again);
    }
    va_end(again);
    return ap_name_make_n(ctx, s, n > 0 ? (size_t)n : 0);
}

const char *ap_name_str(const ap_ctx *ctx, ap_name n)
{
    return ctx->names->text.at[n];
}
